"""Which server answers for a model name: settings and the built-in demo model, as clients."""

import asyncio
from collections.abc import Mapping

from outlast.loop.tokens import Context
from outlast.protocol.errors import NotFound, UpstreamError
from outlast.settings import DEMO_MODEL, Settings
from outlast.upstream import auto
from outlast.upstream.base import Capabilities, Round, Upstream


class Catalog:
    """All configured upstreams. `demo_url`: base URL of the demo model; None where the process does not serve it."""

    def __init__(self, settings: Settings, demo_url: str | None) -> None:
        self._settings = settings
        self._upstreams: dict[str, Upstream] = {name: _client(settings, name) for name in settings.upstreams}
        # The same servers for their models that read no images.
        blind = {each.upstream for each in settings.models.values() if not each.images}
        self._blind: dict[str, Upstream] = {name: _client(settings, name, images=False) for name in blind}
        if demo_url is not None:
            demo = auto.create(DEMO_MODEL, demo_url, "responses", None, None, openai=False, native=False)
            self._upstreams[DEMO_MODEL] = demo

    def resolve(self, model: str) -> tuple[Upstream, str]:
        """The upstream and the name it knows the model by. Raises: NotFound, code model_not_found, param model."""
        route = self._settings.route(model)
        if route is None or route.upstream not in self._upstreams:
            known = ", ".join([*self._settings.models, DEMO_MODEL])
            raise NotFound(
                f"The model '{model}' does not exist here. Known models: {known}.",
                param="model",
                code="model_not_found",
            )
        upstreams = self._upstreams if route.images else self._blind
        return upstreams[route.upstream], route.name

    def capabilities(self, model: str) -> Capabilities:
        """What the server of a model can read. Raises: NotFound."""
        return self.resolve(model)[0].capabilities

    async def count(self, model: str, context: Context) -> int | None:
        """Tokens of a context as the server of a model counts them; None when it does not. Raises: NotFound, as
        `Upstream.stream`."""
        upstream, name = self.resolve(model)
        tools = [tool for tool in context.tools if tool.get("type") != "mcp"]
        asked = Round(name, context.transcript, instructions=context.instructions, native=tools)
        return await upstream.count(asked)

    async def names(self) -> list[str]:
        """Names clients may use: `demo`, the configured ones, and the list of an upstream that serves every name."""
        configured = [DEMO_MODEL, *self._settings.models]
        if self._settings.models:
            return configured
        others = {name: each for name, each in self._upstreams.items() if name != DEMO_MODEL}
        listed = await _lists(others)
        return list(dict.fromkeys([*configured, *listed]))

    async def aclose(self) -> None:
        """Close every connection."""
        every = (*self._upstreams.values(), *self._blind.values())
        await asyncio.gather(*(upstream.aclose() for upstream in every))


def _client(settings: Settings, name: str, *, images: bool = True) -> Upstream:
    given = settings.upstreams[name]
    return auto.create(
        name,
        given.base_url,
        given.spoken_dialect,
        given.api_key(),
        given.api_key_env,
        openai=given.is_openai,
        images=images,
    )


async def _lists(upstreams: Mapping[str, Upstream]) -> list[str]:
    """The upstreams' own lists; one that is away lists nothing (it is its absence we report by, not an error)."""
    names: list[str] = []
    for upstream in upstreams.values():
        try:
            names.extend(await upstream.models())
        except UpstreamError:
            continue
    return names

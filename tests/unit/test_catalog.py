"""Which server answers for a model name, and what it can read."""

from outlast.catalog import Catalog
from outlast.settings import Settings
from outlast.upstream.base import Capabilities


async def test_a_model_reads_what_its_section_and_its_server_say() -> None:
    """`images` is a property of the model, `openai` of the server; api.openai.com needs no flag."""
    given = Settings.model_validate(
        {
            "upstreams": {
                "openai": {"base_url": "https://api.openai.com/v1"},
                "azure": {"base_url": "https://desk.openai.azure.com/openai/v1", "openai": True},
                "local": {"base_url": "http://127.0.0.1:9/v1"},
            },
            "models": {
                "gpt": {"upstream": "openai"},
                "blue": {"upstream": "azure", "images": False},
                "sees": {"upstream": "local"},
                "blind": {"upstream": "local", "images": False, "name": "text-only"},
            },
        }
    )
    catalog = Catalog(given, None)
    assert {name: catalog.capabilities(name) for name in given.models} == {
        "gpt": Capabilities(images=True, encrypted_reasoning=True, native=True),
        "blue": Capabilities(images=False, encrypted_reasoning=True, native=True),
        "sees": Capabilities(images=True),
        "blind": Capabilities(images=False),
    }
    assert catalog.resolve("blind")[1] == "text-only"
    assert {name: each.spoken_dialect for name, each in given.upstreams.items()} == {
        "openai": "responses",
        "azure": "responses",
        "local": "chat",
    }
    await catalog.aclose()


async def test_an_upstream_that_is_away_lists_nothing() -> None:
    """The names that are ours are still there."""
    given = Settings.model_validate({"upstreams": {"away": {"base_url": "http://127.0.0.1:9/v1"}}})
    catalog = Catalog(given, "http://127.0.0.1:9/v1")
    assert await catalog.names() == ["demo"]
    await catalog.aclose()

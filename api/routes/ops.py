"""Health, readiness and the list of models."""

from fastapi import APIRouter
from fastapi.responses import Response

from api.deps import Alive, Caller, Ports
from api.errors import Json
from outlast.protocol.errors import OutlastError

router = APIRouter()


@router.get("/healthz", tags=["operations"])
async def healthz() -> Response:
    """The process answers; nothing else is asked."""
    return Json({"status": "ok"})


@router.get("/readyz", tags=["operations"])
async def readyz(ports: Ports, alive: Alive) -> Response:
    """Whether a request would be served: 200 or 503, with each part's state."""
    checks = {"temporal": await ports.runs.healthy()}
    try:
        checks["workers"] = await alive.workers()
        checks["store"] = True
    except OutlastError:
        checks |= {"workers": False, "store": False}
    ready = all(checks.values())
    body = {"status": "ok" if ready else "unavailable", "checks": checks}
    return Json(body, status_code=200 if ready else 503, headers=None if ready else {"retry-after": "1"})


@router.get("/v1/models", tags=["models"])
async def models(_caller: Caller, ports: Ports) -> Response:
    """Names a request may use."""
    names = await ports.catalog.names()
    data = [{"id": name, "object": "model", "created": 0, "owned_by": "outlast"} for name in names]
    return Json({"object": "list", "data": data})


@router.get("/v1/models/{model:path}", tags=["models"])
async def model(model: str, _caller: Caller, ports: Ports) -> Response:
    """One model."""
    ports.catalog.resolve(model)
    return Json({"id": model, "object": "model", "created": 0, "owned_by": "outlast"})

"""WebSocket mode of `/v1/responses`."""

from fastapi import APIRouter, WebSocket

from api.deps import Alive, Caller, Ports
from api.websocket import Connection

router = APIRouter()


@router.websocket("/v1/responses")
async def connect(socket: WebSocket, caller: Caller, ports: Ports, alive: Alive) -> None:
    """Serve one client until it leaves."""
    await Connection(socket, caller, ports, alive).serve()

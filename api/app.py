"""Composition of the HTTP side: routes over ports, one error envelope, one outermost layer.

The ports belong to whoever built them (`outlast.processes`): the application neither opens nor closes one.
"""

from fastapi import FastAPI

from api import errors, openapi
from api.edge import Edge
from api.liveness import Liveness
from api.routes import approvals, blobs, conversations, ops, responses, websocket
from api.services import ApprovalDefaults, Catalog, Services

__all__ = ["ApprovalDefaults", "Catalog", "Services", "create_app"]

_DESCRIPTION = (
    "An OpenAI-compatible Responses API whose agent runs are durable. "
    "Point an OpenAI client at `/v1`; open asks are under `/v1/approvals`."
)


def create_app(services: Services) -> FastAPI:
    """The ASGI application over these ports."""
    app = FastAPI(title="Outlast", description=_DESCRIPTION, version="0.1.0", redirect_slashes=False)
    app.state.services = services
    app.state.liveness = Liveness(services.store, services.clock)
    app.include_router(responses.router)
    app.include_router(conversations.router)
    app.include_router(approvals.router)
    app.include_router(blobs.router)
    app.include_router(ops.router)
    app.include_router(websocket.router)
    errors.install(app)
    app.openapi = openapi.document(app)  # type: ignore[method-assign]  # the documented way to change it
    app.add_middleware(Edge)
    return app

"""What a route is given: who asks, and the ports it may use."""

from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import Depends
from starlette.requests import HTTPConnection

from api.liveness import Liveness
from api.services import Services
from outlast.protocol.errors import Forbidden

Role = Literal["caller", "approver", "admin"]


@dataclass(frozen=True, slots=True)
class Principal:
    """Who sent the request. `key_id` is the owner of the credentials a request brings ("credentials' owner")."""

    tenant: str
    key_id: str
    roles: frozenset[Role]

    def has(self, role: Role) -> bool:
        """Whether the key holds the role; an admin has every one."""
        return role in self.roles or "admin" in self.roles

    def require(self, role: Role) -> None:
        """Raises: Forbidden naming the role."""
        if not self.has(role):
            raise Forbidden(f"This needs the role {role!r}, which your API key does not have.")


LOCAL = Principal(tenant="default", key_id="local", roles=frozenset({"caller", "approver", "admin"}))


async def principal(connection: HTTPConnection) -> Principal:
    """Who asks: the one local principal until there are API keys. Tests override this dependency."""
    return LOCAL


async def services(connection: HTTPConnection) -> Services:
    """The ports of this process."""
    found: Services = connection.app.state.services
    return found


async def liveness(connection: HTTPConnection) -> Liveness:
    """Whether workers are alive, cached for all requests of this process."""
    found: Liveness = connection.app.state.liveness
    return found


Caller = Annotated[Principal, Depends(principal)]
Ports = Annotated[Services, Depends(services)]
Alive = Annotated[Liveness, Depends(liveness)]

"""How we speak to Temporal: connection, converters, search attributes.

Temporal history is readable by everybody who reaches its UI. The payload converter writes the types of `contracts.py`
and nothing else; the failure converter writes a code and ids, never a message, cause or stack trace of ours or of a
library: those may quote prompts and outputs, and go to the log.
"""

import asyncio
from datetime import timedelta
from typing import Final

import temporalio.api.common.v1
import temporalio.api.enums.v1
import temporalio.api.failure.v1
import temporalio.converter
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client, GrpcCompression
from temporalio.contrib.pydantic import PydanticJSONPlainPayloadConverter
from temporalio.converter import CompositePayloadConverter, DataConverter, DefaultFailureConverter
from temporalio.exceptions import ApplicationError, FailureError
from temporalio.service import RPCError, RPCStatusCode

from outlast import contracts, netaddr
from outlast.protocol.errors import ConfigurationError, OutlastError, Unavailable

# A `retry-after` above this is not waited for: the client gets the refusal and decides (architecture §4).
LONGEST_RETRY_AFTER: Final = 30.0

_CONNECT_TIMEOUT = timedelta(seconds=10)
_RPC_TIMEOUT = timedelta(seconds=5)
_Kind = temporalio.api.enums.v1.IndexedValueType
_ATTRIBUTES: Final = {
    contracts.SEARCH_RESPONSES: _Kind.INDEXED_VALUE_TYPE_KEYWORD_LIST,
    contracts.SEARCH_TENANT: _Kind.INDEXED_VALUE_TYPE_KEYWORD,
    contracts.SEARCH_MODEL: _Kind.INDEXED_VALUE_TYPE_KEYWORD,
    contracts.SEARCH_PENDING: _Kind.INDEXED_VALUE_TYPE_INT,
}
# Refused until the server's cache knows every name.
_PROBE: Final = (
    f"{contracts.SEARCH_RESPONSES} = 'probe' AND {contracts.SEARCH_TENANT} = 'probe' "
    f"AND {contracts.SEARCH_MODEL} = 'probe' AND {contracts.SEARCH_PENDING} > 0"
)

# Shared by every converter of the process. The SDK makes a new converter for each run, and a fresh one would compile
# the schema of `RunInput` again in the first workflow task.
_JSON = PydanticJSONPlainPayloadConverter()


class PayloadConverter(CompositePayloadConverter):
    """The SDK's converters with JSON read and written by pydantic, whose type adapters outlive a run."""

    def __init__(self) -> None:
        default = temporalio.converter.DefaultPayloadConverter.default_encoding_payload_converters
        super().__init__(*(_JSON if each.encoding == _JSON.encoding else each for each in default))


class FailureConverter(DefaultFailureConverter):
    """Codes and ids only: what is not an error of Temporal's becomes an `ApplicationError` without text.

    Type: the class name. Message: the class's code, `internal_error` for a foreign exception. Cause, context and stack
    trace are dropped from every failure.
    """

    def to_failure(
        self,
        exception: BaseException,
        payload_converter: temporalio.converter.PayloadConverter,
        failure: temporalio.api.failure.v1.Failure,
    ) -> None:
        """See the SDK's base class."""
        match exception:
            case FailureError():
                known: FailureError = exception
            case OutlastError():
                known = application_error(exception)
            case _:
                known = ApplicationError("internal_error", type=type(exception).__name__)
        super().to_failure(known, payload_converter, failure)
        failure.ClearField("stack_trace")
        failure.ClearField("cause")


DATA_CONVERTER: Final = DataConverter(
    payload_converter_class=PayloadConverter, failure_converter_class=FailureConverter
)


def application_error(error: OutlastError, *ids: str) -> ApplicationError:
    """What Temporal may know of one of ours: class, code and the ids of rows that hold the rest.

    The instance's own `code` is left out because an upstream may have written it. `retry_after` becomes the delay of
    the next attempt; a longer one than LONGEST_RETRY_AFTER makes the error final.
    """
    code = error.default_code or error.response_code
    delay = error.retry_after if error.retryable else None
    too_long = delay is not None and delay > LONGEST_RETRY_AFTER
    return ApplicationError(
        code,
        *ids,
        type=type(error).__name__,
        non_retryable=not error.retryable or too_long,
        next_retry_delay=None if delay is None or too_long else timedelta(seconds=delay),
    )


async def connect(address: str, namespace: str = "default") -> Client:
    """A client of `address` (`host:port`). Raises: Unavailable when nobody answers there."""
    host = address.rpartition(":")[0].strip("[]")
    # The SDK's default, gzip, is CPU for nothing where no wire is saved.
    compression = GrpcCompression.NONE if netaddr.is_loopback(host) else GrpcCompression.GZIP
    try:
        return await Client.connect(
            address,
            namespace=namespace,
            data_converter=DATA_CONVERTER,
            grpc_compression=compression,
            connect_timeout=_CONNECT_TIMEOUT,
        )
    except RuntimeError as error:
        raise Unavailable(f"Temporal does not answer at {address}: {error}") from error


async def ensure_search_attributes(client: Client, *, timeout: float = 90) -> None:
    """Register our search attributes where they are missing, and return once a query may use them.

    timeout: seconds; a cluster's caches may need one minute, the development server 30 ms. Any process may do it.
    Raises: ConfigurationError when we may not, or when a name has another type; Unavailable when the server is away.
    """
    try:
        missing = await _missing_attributes(client)
        if missing:
            await _register(client, missing)
        async with asyncio.timeout(timeout):
            while not await _attributes_usable(client):  # noqa: ASYNC110  # the server tells nobody
                await asyncio.sleep(0.05)
    except TimeoutError as error:
        raise Unavailable(f"Temporal registered the search attributes but refuses them after {timeout:g} s") from error
    except RPCError as error:
        raise _explained(error, client.namespace) from error


async def _missing_attributes(client: Client) -> list[str]:
    answer = await client.operator_service.list_search_attributes(
        ListSearchAttributesRequest(namespace=client.namespace), retry=True, timeout=_RPC_TIMEOUT
    )
    for name, kind in _ATTRIBUTES.items():
        found = answer.custom_attributes.get(name, kind)
        if found != kind:
            raise ConfigurationError(
                f"search attribute {name} of namespace {client.namespace!r} is {_Kind.Name(found)}, "
                f"not {_Kind.Name(kind)}: remove it or use another namespace"
            )
    return [name for name in _ATTRIBUTES if name not in answer.custom_attributes]


async def _register(client: Client, names: list[str]) -> None:
    request = AddSearchAttributesRequest(
        namespace=client.namespace, search_attributes={name: _ATTRIBUTES[name] for name in names}
    )
    try:
        await client.operator_service.add_search_attributes(request, retry=True, timeout=_RPC_TIMEOUT)
    except RPCError as error:
        # Another process was faster.
        if error.status != RPCStatusCode.ALREADY_EXISTS:
            raise


async def _attributes_usable(client: Client) -> bool:
    try:
        await client.count_workflows(_PROBE, rpc_timeout=_RPC_TIMEOUT)
    except RPCError as error:
        if error.status == RPCStatusCode.INVALID_ARGUMENT:
            return False
        raise
    return True


def _explained(error: RPCError, namespace: str) -> OutlastError:
    match error.status:
        case RPCStatusCode.NOT_FOUND:
            return ConfigurationError(f"Temporal has no namespace {namespace!r}: create it or set [temporal] namespace")
        case RPCStatusCode.PERMISSION_DENIED:
            wanted = ", ".join(f"{name} ({_Kind.Name(kind)})" for name, kind in _ATTRIBUTES.items())
            return ConfigurationError(
                f"Temporal does not let us register search attributes: an admin must add {wanted}"
            )
        case _:
            return Unavailable(f"Temporal failed to register search attributes: {error.message}")

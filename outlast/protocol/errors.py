"""The one exception tree.

    OutlastError
    ├── InvalidRequest                 400 invalid_request_error
    │   ├── UnsupportedFeature         400 …, code unsupported_feature
    │   ├── PreviousResponseNotFound   400 …, code previous_response_not_found
    │   ├── IdempotencyKeyReused       400 …, code idempotency_key_reused
    │   ├── ConversationLocked         400 …, code conversation_locked
    │   ├── ApprovalAlreadyDecided     400 …, code approval_already_decided
    │   └── ApprovalMismatch           400 …, code approval_mismatch
    ├── NotFound                       404
    ├── PayloadTooLarge                413
    ├── Unauthorized                   401
    ├── Forbidden                      403
    ├── ToolServerUnavailable          424: a server whose tools are `required` could not be listed
    ├── UpstreamError                  what a model server answered or failed to answer
    │   ├── UpstreamRefused            its 4xx, passed on
    │   ├── UpstreamAuth               502, code upstream_auth
    │   ├── UpstreamRateLimited        429, keeps Retry-After
    │   └── UpstreamUnavailable        502: 5xx, time-outs, cut streams; retryable
    ├── Unavailable                    503, Retry-After: Temporal or the store is away
    ├── StaleFence                     internal: a newer attempt owns the step
    ├── ResponseEnded                  internal: the response is terminal, nothing may be appended
    ├── ConfigurationError             never on the wire: a process cannot start as it is configured
    └── InternalError                  500 with a correlation id, no internals

Each class fixes HTTP status, error type, wire code and retryability; the message says what to change. `api/errors.py`
and `outlast/temporal.py` are the only places that map it. None uses 409 or 422: the official SDKs retry 409.
"""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """The `error` object of the HTTP envelope; all four keys are always there."""

    message: str
    type: str
    param: str | None
    code: str | None


class OutlastError(Exception):
    """Base of all of ours."""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    default_code: ClassVar[str | None] = None
    # Code of `response.error` when a run ends with this: the closed set of contract.md §14.
    response_code: ClassVar[str] = "server_error"
    # Whether Temporal may try the step again.
    retryable: ClassVar[bool] = False

    def __init__(
        self, message: str, *, param: str | None = None, code: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code if code is not None else self.default_code
        self.retry_after = retry_after

    @property
    def http_status(self) -> int:
        """The status of this error; an upstream's refusal carries its own."""
        return self.status

    def body(self) -> ErrorBody:
        """What the client sees."""
        return ErrorBody(message=self.message, type=self.type, param=self.param, code=self.code)


class InvalidRequest(OutlastError):
    """The request cannot be served as it is; `param` names the field."""

    status = 400
    type = "invalid_request_error"
    response_code = "invalid_prompt"


class UnsupportedFeature(InvalidRequest):
    """A part of the API this version refuses by name."""

    default_code = "unsupported_feature"


class PreviousResponseNotFound(InvalidRequest):
    """`previous_response_id` names nothing of this tenant."""

    default_code = "previous_response_not_found"


class ConversationLocked(InvalidRequest):
    """Another response is in progress on the conversation, or it was changed while this request was checked."""

    default_code = "conversation_locked"


class IdempotencyKeyReused(InvalidRequest):
    """The `Idempotency-Key` was used with another body; nothing was run for this one."""

    default_code = "idempotency_key_reused"


class ApprovalAlreadyDecided(InvalidRequest):
    """The ask has another decision or was taken; the message names the winner."""

    default_code = "approval_already_decided"


class ApprovalMismatch(InvalidRequest):
    """The continuation points the approved call at another server; the approval is not burnt."""

    default_code = "approval_mismatch"


class NotFound(OutlastError):
    """Unknown, or of another tenant."""

    status = 404
    type = "invalid_request_error"
    default_code = "not_found"


class PayloadTooLarge(OutlastError):
    """The body is over the limit the message names."""

    status = 413
    type = "invalid_request_error"
    default_code = "payload_too_large"


class Unauthorized(OutlastError):
    """No or a wrong key."""

    status = 401
    type = "authentication_error"
    default_code = "invalid_api_key"


class Forbidden(OutlastError):
    """The key lacks the role the message names."""

    status = 403
    type = "permission_error"
    default_code = "forbidden"


class ToolServerUnavailable(OutlastError):
    """An MCP server marked `required` could not be listed; without the mark the run goes on without it."""

    status = 424
    type = "invalid_request_error"
    default_code = "mcp_list_tools_failed"


class UpstreamError(OutlastError):
    """What a model server answered, or that it did not."""

    status = 502
    type = "server_error"
    default_code = "upstream_error"


class UpstreamRefused(UpstreamError):
    """A 4xx of the upstream, its text passed on; final."""

    type = "invalid_request_error"
    response_code = "invalid_prompt"

    def __init__(
        self, message: str, *, upstream_status: int, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message, param=param, code=code)
        # 409 and 422 would be retried or misread by SDKs.
        self.upstream_status = 400 if upstream_status in (402, 405, 409, 422) else upstream_status

    @property
    def http_status(self) -> int:
        return self.upstream_status


class UpstreamAuth(UpstreamError):
    """The upstream refused our key; the message names the config key."""

    default_code = "upstream_auth"


class UpstreamRateLimited(UpstreamError):
    """429 of the upstream."""

    status = 429
    type = "rate_limit_error"
    default_code = "rate_limit_exceeded"
    response_code = "rate_limit_exceeded"
    retryable = True


class UpstreamUnavailable(UpstreamError):
    """5xx, 408, time-out, refused connection or a cut stream."""

    default_code = "upstream_unavailable"
    retryable = True


class Unavailable(OutlastError):
    """Temporal, a worker or the store is away."""

    status = 503
    default_code = "unavailable"
    retryable = True


class StaleFence(OutlastError):
    """A newer attempt of this step owns it: this one must stop and write nothing."""


class ResponseEnded(OutlastError):
    """The response is terminal, deleted or owned by another workflow: nothing may be appended."""


class ConfigurationError(OutlastError):
    """A process cannot start as configured: the message names the key, flag or port and what to change."""


class InternalError(OutlastError):
    """A bug of ours; the client gets the correlation id only."""

    default_code = "internal_error"

"""The failures that callers of the daemon can meet. Those of one module alone stand there, as a provider's do.

    LemonadeError                          500 internal_error
    ├── RequestError                       400 invalid_request_error      the client's mistake
    │   ├── InvalidJSON                    400 invalid_json
    │   ├── InvalidForm                    400 invalid_form
    │   ├── MissingArgument                400 missing_argument
    │   ├── InvalidArgument                400 invalid_argument
    │   ├── UnsupportedOperation           400 unsupported_operation
    │   ├── InvalidAlias                   400 invalid_alias
    │   ├── AliasConflict                  409 alias_conflict
    │   ├── AliasNotFound                  404 alias_not_found
    │   ├── UnknownModel                   400 unknown_model
    │   ├── UpscalerNotFound               404
    │   ├── DownloadNotFound               404 download_not_found
    │   ├── ContextLengthExceeded          400 context_length_exceeded
    │   ├── BodyTooLarge                   413
    │   └── UnsupportedMediaType           415
    ├── AccessError
    │   ├── Unauthorized                   401
    │   └── Forbidden                      403
    ├── RouteNotFound                      404 not_found
    ├── MethodNotAllowed                   405
    ├── ModelError                         the model that was named
    │   ├── ModelNotFound                  404 model_not_found
    │   ├── ModelNotSupported              404 model_not_supported
    │   ├── ModelNotApplicable             400 model_not_applicable
    │   ├── ModelNotLoaded                 404 model_not_loaded
    │   ├── ModelLoadRefused               400 model_load_refused
    │   ├── SlotsPinned                    409 slots_pinned_error
    │   ├── ResidencyConflict              409 router_residency_conflict
    │   └── ModelLoadError                 500 model_load_error
    ├── EngineError                        500 backend_error              an engine's own answer or failure
    │   ├── EngineReplied                  the engine's status
    │   ├── ContextShared                  503 context_shared, with Retry-After
    │   ├── EngineSilent                   502                            closed without an answer
    │   └── EngineLost                     502 backend_unavailable | backend_watchdog_reset
    ├── HubError                           500 download_error             a registry, or the way to it
    │   ├── RepositoryNotFound             404
    │   ├── RepositoryGated                403
    │   ├── FileNotInRepository            404
    │   ├── RegistryUnreachable            502
    │   ├── RegistryReplied                502
    │   ├── IntegrityError                 500
    │   ├── ArchiveRefused                 500
    │   ├── NotEnoughSpace                 500
    │   ├── DownloadCancelled              500
    │   └── Offline                        400 lemond_offline
    ├── StorageError                       500 internal_error             a file of the daemon's own
    ├── Busy                               429 or 503, with Retry-After
    └── ConfigError                        400 invalid_config             a setting that cannot hold

`status` is the HTTP status; `type` and `code` go into the body; `retry` says whether the same request may succeed
later.
"""

from __future__ import annotations

from typing import Any, ClassVar


class LemonadeError(Exception):
    """The root. `message` is written for the person who will read it in a terminal.

    Args:
        message: what failed and what would be right.
        param: the request's field at fault, as the client wrote it.
        details: further keys of the error object on the wire.
    """

    status: int = 500
    type: str = "internal_error"
    code: str | None = None
    #: Whether the very same request may succeed if it is sent again. Clients obey the header made from it.
    retry: ClassVar[bool] = False
    #: Seconds after which a retry is worthwhile; only with `retry`.
    retry_after: float | None = None

    def __init__(self, message: str, *, param: str | None = None, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.details = details or {}

    def body(self) -> dict[str, Any]:
        """The error object: `{"message", "type", "code"?, "param"?, …}`."""
        error: dict[str, Any] = {"message": self.message, "type": self.type}
        if self.code is not None:
            error["code"] = self.code
        if self.param is not None:
            error["param"] = self.param
        error.update(self.details)
        return error


# The client's mistakes.


class RequestError(LemonadeError):
    status = 400
    type = "invalid_request_error"


class InvalidJSON(RequestError):
    code = "invalid_json"


class InvalidForm(RequestError):
    """The body is not `multipart/form-data`, or a broken one."""

    code = "invalid_form"


class MissingArgument(RequestError):
    code = "missing_argument"

    def __init__(self, param: str, message: str | None = None) -> None:
        super().__init__(message or f"Missing required argument '{param}'.", param=param)


class InvalidArgument(RequestError):
    code = "invalid_argument"


class UnsupportedOperation(RequestError):
    type = "unsupported_operation"


class InvalidAlias(RequestError):
    code = "invalid_alias"


class AliasConflict(RequestError):
    status = 409
    code = "alias_conflict"


class AliasNotFound(RequestError):
    status = 404
    code = "alias_not_found"


class UnknownModel(RequestError):
    """What is to be pulled is no model that we know, and not defined either."""

    code = "unknown_model"


class UpscalerNotFound(RequestError):
    """The model that is to make a picture larger is not known, or cannot be downloaded."""

    status = 404


class DownloadNotFound(RequestError):
    status = 404
    code = "download_not_found"


class ContextLengthExceeded(RequestError):
    code = "context_length_exceeded"


class BodyTooLarge(RequestError):
    status = 413


class UnsupportedMediaType(RequestError):
    status = 415


# Who may ask.


class AccessError(LemonadeError):
    type = "authentication_error"


class Unauthorized(AccessError):
    status = 401
    code = "invalid_api_key"


class Forbidden(AccessError):
    status = 403
    type = "permission_error"


class RouteNotFound(LemonadeError):
    status = 404
    type = "not_found"


class MethodNotAllowed(LemonadeError):
    status = 405
    type = "method_not_allowed"


# The model that was named.


class ModelError(LemonadeError):
    """A failure of one model; `type` equals `code` and the body repeats the requested name."""

    def __init__(self, message: str, *, requested: str | None = None, details: dict[str, Any] | None = None) -> None:
        super().__init__(message, param="model", details=details)
        self.requested = requested
        if requested is not None:
            self.details = {**self.details, "requested_model": requested}


class ModelNotFound(ModelError):
    status = 404
    type = code = "model_not_found"


class ModelNotSupported(ModelError):
    status = 404
    type = code = "model_not_supported"


class ModelNotApplicable(ModelError):
    """The model is of another kind than what is asked of it."""

    status = 400
    type = code = "model_not_applicable"


class ModelNotLoaded(ModelError):
    status = 404
    type = code = "model_not_loaded"


class ModelLoadRefused(ModelError):
    status = 400
    type = code = "model_load_refused"


class SlotsPinned(ModelError):
    status = 409
    type = code = "slots_pinned_error"


class ResidencyConflict(ModelError):
    status = 409
    type = code = "router_residency_conflict"


class ModelLoadError(ModelError):
    status = 500
    type = code = "model_load_error"


# An engine's own answer, or its failure.


class EngineError(LemonadeError):
    type = "backend_error"


class EngineReplied(EngineError):
    """The engine answered with an error; `status`, `type`, `code` and `param` are its own where it sent them."""

    def __init__(
        self,
        message: str,
        *,
        status: int,
        type: str | None = None,  # noqa: A002 - the wire's name
        code: str | None = None,
        param: str | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message, param=param, details=details)
        self.status = status if 400 <= status <= 599 else 500
        self.type = type or ("invalid_request_error" if self.status < 500 else "backend_error")
        self.code = code


class ContextShared(EngineError):
    """Requests that an engine answered at once outgrew the context that they share; it gives all of them up."""

    status = 503
    code = "context_shared"
    retry = True
    retry_after = 1.0


class EngineSilent(EngineError):
    status = 502


class EngineLost(EngineError):
    """The engine's process died or hung with the request inside; the next request starts it anew."""

    status = 502
    code = "backend_unavailable"
    retry = True


# Registries and downloads.


class HubError(LemonadeError):
    type = "download_error"


class RepositoryNotFound(HubError):
    status = 404
    code = "repository_not_found"


class RepositoryGated(HubError):
    status = 403
    code = "repository_gated"


class FileNotInRepository(HubError):
    status = 404
    code = "file_not_found"


class RegistryUnreachable(HubError):
    status = 502
    code = "registry_unreachable"
    retry = True


class RegistryReplied(HubError):
    status = 502
    code = "registry_error"


class IntegrityError(HubError):
    code = "integrity_error"


class ArchiveRefused(HubError):
    """An archive holds something that no honest one would; nothing of it was unpacked."""

    code = "archive_refused"


class NotEnoughSpace(HubError):
    code = "not_enough_space"


class DownloadCancelled(HubError):
    code = "download_cancelled"


class Offline(HubError):
    status = 400
    code = "lemond_offline"


# The daemon's own state.


class StorageError(LemonadeError):
    """A file in which the daemon keeps something cannot be read or written."""

    type = "server_error"
    code = "internal_error"


class Busy(LemonadeError):
    """Too much is asked at once; 429 for one model's queue, 503 for the whole daemon (stopping, say)."""

    status = 429
    type = "rate_limit_error"
    code = "queue_full"
    retry = True
    retry_after = 1.0

    def __init__(self, message: str, *, status: int = 429, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after
        if status == 503:
            self.type, self.code = "server_error", "unavailable"


class ConfigError(RequestError):
    code = "invalid_config"

"""What can be wrong with cloud providers, beside what can be wrong with any engine."""

from __future__ import annotations

from lemonade.errors import EngineError, RequestError


class InsecureHTTP(RequestError):
    """Plain http shows keys and prompts to everybody on the way; somebody has to say that this is all right."""

    code = "insecure_http_requires_opt_in"


class ProviderNotFound(RequestError):
    """No cloud provider of that name is installed."""

    status = 404
    code = "provider_not_found"


class AuthConflict(RequestError):
    """A provider's key comes from the environment, which a key that is given while running would not replace."""

    status = 409
    type = code = "auth_conflict"


class ProviderUnreachable(EngineError):
    """A cloud provider cannot be reached, or went away in the middle of its answer."""

    status = 502
    code = "provider_unreachable"
    retry = True

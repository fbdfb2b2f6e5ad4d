"""Cloud providers: `POST /v1/install` and `/v1/uninstall` with the backend `cloud`, `/v1/cloud/auth`, `/v1/cloud`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from lemonade.api.endpoint import Endpoint, ErrorRow
from lemonade.api.storage import STORAGE_ERROR, storing
from lemonade.errors import MissingArgument

if TYPE_CHECKING:
    from lemonade.api.exchange import Exchange
    from lemonade.api.services import Services
    from lemonade.engines.cloud.provider import Provider

NOT_INSTALLED = ErrorRow(404, "provider_not_found", "No cloud provider of that name is installed.")


class AuthState(msgspec.Struct):
    """Which keys a provider has."""

    env_var_set: Annotated[bool, Meta(description="One in the environment; it counts more than the other.")]
    runtime_key_set: Annotated[bool, Meta(description="One that was given while the daemon runs.")]


class ProviderObject(msgspec.Struct):
    """A cloud provider."""

    provider: Annotated[str, Meta(description="Its name, with which the ids of its models begin.")]
    base_url: Annotated[str, Meta(description="The address of its API.")]
    allow_insecure_http: Annotated[bool, Meta(description="Whether somebody consented to plain http.")]
    auth_header_name: Annotated[str, Meta(description="The header for the key.")]
    auth_header_prefix: Annotated[str, Meta(description="What stands in it before the key.")]
    wire_format: Annotated[str, Meta(description="`openai` or `anthropic`.")]
    models_discovered: Annotated[int, Meta(description="How many of its models can be asked for.")]
    auth_state: AuthState


class ProviderList(msgspec.Struct):
    """The providers that are installed."""

    providers: Annotated[list[ProviderObject], Meta(description="In the order of their names.")]


class InstallProvider(msgspec.Struct):
    """A cloud provider. What is left out stays as it was, if the provider is installed already."""

    provider: Annotated[str | UnsetType | None, Meta(description="Cloud: its name, 1 to 64 of a-z, 0-9, - and _.")] = (
        UNSET
    )
    base_url: Annotated[
        str | UnsetType | None, Meta(description="Cloud: the address of its API, such as https://api.example.com/v1.")
    ] = UNSET
    api_key: Annotated[
        str | UnsetType | None, Meta(description="Cloud: its key, kept in memory until the daemon ends.")
    ] = UNSET
    allow_insecure_http: Annotated[
        bool | UnsetType | None, Meta(description="Cloud: `true` consents to plain http.")
    ] = UNSET
    auth_header_name: Annotated[
        str | UnsetType | None,
        Meta(description="Cloud: the header for the key; `Authorization`, or `x-api-key` on the anthropic wire."),
    ] = UNSET
    auth_header_prefix: Annotated[
        str | UnsetType | None, Meta(description="Cloud: what stands in it before the key; `Bearer ` by default.")
    ] = UNSET
    wire_format: Annotated[
        str | UnsetType | None,
        Meta(description="Cloud: `openai`, the default, or `anthropic`, which is asked through `POST /v1/messages`."),
    ] = UNSET


FIELDS = ("base_url", "allow_insecure_http", "auth_header_name", "auth_header_prefix", "wire_format")


async def install(exchange: Exchange, body: InstallProvider) -> None:
    """Answers `POST /v1/install` for a provider."""
    providers = exchange.services.providers
    name = _name(body.provider)
    entry = {key: value for key in FIELDS if (value := getattr(body, key)) is not UNSET}
    key = body.api_key if isinstance(body.api_key, str) else None
    with storing():
        provider, _ = await providers.install({"name": name, **entry}, key)
    warnings = _warnings(exchange.services, provider)
    if key is not None and providers.auth_state(name)["env_var_set"]:
        warnings.insert(0, f"The environment holds a key of '{name}' already, which counts more than this one.")
    answer = {"status": "success", "backend": "cloud", **describe(exchange.services, provider)}
    await exchange.json(_with(answer, warnings))


async def uninstall(exchange: Exchange, provider: str | UnsetType | None) -> None:
    """Answers `POST /v1/uninstall` for a provider."""
    name = _name(provider)
    with storing():
        evicted = exchange.services.providers.uninstall(name)
    await exchange.json({"status": "success", "backend": "cloud", "provider": name, "models_evicted": evicted})


def describe(services: Services, provider: Provider) -> dict[str, Any]:
    """The provider object of the wire."""
    header, prefix = provider.header
    models = services.providers.models().values()
    return {
        "provider": provider.name,
        "base_url": provider.base_url,
        "allow_insecure_http": provider.allow_insecure_http,
        "auth_header_name": header,
        "auth_header_prefix": prefix,
        "wire_format": provider.wire_format,
        "models_discovered": sum(model.extras["cloud_provider"] == provider.name for model in models),
        "auth_state": services.providers.auth_state(provider.name),
    }


def flat(services: Services, provider: Provider) -> dict[str, Any]:
    """The provider as `GET /v1/system-info` has it, with what is not as it should be."""
    shown = describe(services, provider)
    name, state = shown.pop("provider"), shown.pop("auth_state")
    return _with({"name": name, **shown, "env_var": provider.variable, **state}, _warnings(services, provider))


def _name(name: Any) -> str:
    if not isinstance(name, str) or not name:
        raise MissingArgument("provider")
    return name


def _warnings(services: Services, provider: Provider) -> list[str]:
    """What a person should know after a discovery."""
    problem = services.providers.problem(provider.name)
    warnings = [problem] if problem else []
    if provider.base_url.startswith("http://"):
        warnings.append("Plain http: prompts and the key can be read on the way.")
    return warnings


def _with(answer: dict[str, Any], warnings: list[str]) -> dict[str, Any]:
    return {**answer, "warnings": warnings, "warning": " ".join(warnings)} if warnings else answer


class AuthRequest(msgspec.Struct):
    """A provider's key."""

    provider: Annotated[str, Meta(description="The provider's name.")]
    api_key: Annotated[str, Meta(description="The key, kept in memory until the daemon ends.")]
    allow_insecure_http: Annotated[
        bool | UnsetType | None, Meta(description="`true` consents to plain http, from now on.")
    ] = UNSET


class AuthResponse(msgspec.Struct):
    """The key is in use."""

    provider: Annotated[str, Meta(description="The provider's name.")]
    allow_insecure_http: Annotated[bool, Meta(description="Whether somebody consented to plain http.")]
    auth_state: AuthState
    models_discovered: Annotated[int, Meta(description="How many models can be had with it.")]
    warnings: Annotated[list[str] | None, Meta(description="What is not as it should be, if anything.")] = None


async def authenticate(exchange: Exchange, body: AuthRequest) -> None:
    providers = exchange.services.providers
    if isinstance(body.allow_insecure_http, bool):
        providers.get(body.provider)
        with storing():
            providers.change({"name": body.provider, "allow_insecure_http": body.allow_insecure_http})
    found = await providers.authenticate(body.provider, body.api_key)
    provider = providers.get(body.provider)
    answer = {
        "provider": provider.name,
        "allow_insecure_http": provider.allow_insecure_http,
        "auth_state": providers.auth_state(provider.name),
        "models_discovered": found,
    }
    await exchange.json(_with(answer, _warnings(exchange.services, provider)))


AUTH = Endpoint(
    id="lemonade.cloud_auth",
    method="POST",
    path="/cloud/auth",
    summary="Give a cloud provider's key",
    description=(
        "The key stays in the daemon's memory and is written nowhere; it has to be given anew after a restart. One in "
        "the environment, `LEMONADE_NAME_API_KEY` with the provider's name in capitals, counts more and lasts."
    ),
    body=AuthRequest,
    response=AuthResponse,
    errors=(
        NOT_INSTALLED,
        ErrorRow(409, "auth_conflict", "The environment holds a key of this provider; `env_var` names the variable."),
        STORAGE_ERROR,
    ),
    changes=True,
    handler=authenticate,
)


class ClearResponse(msgspec.Struct):
    """The key is forgotten."""

    provider: Annotated[str, Meta(description="The provider's name.")]
    cleared_runtime_key: Annotated[bool, Meta(description="Whether there was one.")]
    auth_state: AuthState


async def clear(exchange: Exchange, body: None) -> None:
    providers = exchange.services.providers
    cleared = providers.clear(exchange.id)
    state = providers.auth_state(exchange.id)
    await exchange.json({"provider": exchange.id, "cleared_runtime_key": cleared, "auth_state": state})


CLEAR = Endpoint(
    id="lemonade.cloud_auth_delete",
    method="DELETE",
    path="/cloud/auth/{id}",
    summary="Forget a cloud provider's key",
    description=(
        "The one that was given while the daemon runs. Without one in the environment, the provider's models leave the "
        "list. A name that is not installed has no key, which is no error."
    ),
    response=ClearResponse,
    changes=True,
    handler=clear,
)


async def show(exchange: Exchange, body: None) -> None:
    services = exchange.services
    await exchange.json({"providers": [describe(services, provider) for provider in services.providers.all()]})


PROVIDERS = Endpoint(
    id="lemonade.cloud",
    method="GET",
    path="/cloud",
    summary="List the cloud providers",
    response=ProviderList,
    handler=show,
)

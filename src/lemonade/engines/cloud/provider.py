"""What a provider is: a name, an address, the wire that it speaks, and how it is shown a key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, cast, get_args
from urllib.parse import urlsplit

import msgspec

from lemonade.engines.cloud.failures import InsecureHTTP
from lemonade.errors import InvalidArgument, MissingArgument

Wire = Literal["openai", "anthropic"]
WIRES: tuple[str, ...] = get_args(Wire)

NAME = re.compile(r"[a-z0-9_-]{1,64}")
#: Names that would make models look like the person's own ones, or keys of the daemon look like a provider's:
#: `LEMONADE_ADMIN_API_KEY` is no key for a provider `admin`.
RESERVED = frozenset({"user", "extra", "builtin", "cloud", "admin"})
_VARIABLE = re.compile(r"LEMONADE_([A-Z0-9_-]+)_API_KEY")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
#: Headers that are the connection's own business.
_TAKEN = frozenset({"host", "content-length", "content-type", "transfer-encoding", "connection", "accept-encoding"})
_PRINTABLE = re.compile(r"[\x20-\x7e]{0,64}")
_KEY = re.compile(r"[\x21-\x7e]{1,4096}")


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """A server that runs models for us.

    Attributes:
        name: the first part of the ids of its models.
        base_url: what the paths of its API are appended to, such as `https://api.example.com/v1`; no slash at the end.
        allow_insecure_http: somebody consented to plain http.
        auth_header_name: the header that carries the key; empty takes the wire's own.
        auth_header_prefix: what stands before the key; None takes the wire's own.
        wire_format: whose API it speaks.
    """

    name: str
    base_url: str
    allow_insecure_http: bool = False
    auth_header_name: str = ""
    auth_header_prefix: str | None = None
    wire_format: Wire = "openai"

    @property
    def header(self) -> tuple[str, str]:
        """The header for the key, and what stands in it before the key."""
        own = ("x-api-key", "") if self.wire_format == "anthropic" else ("Authorization", "Bearer ")
        name = self.auth_header_name or own[0]
        if self.auth_header_prefix is not None:
            return name, self.auth_header_prefix
        return name, own[1] if name.lower() == own[0].lower() else ""

    @property
    def variable(self) -> str:
        """The variable of the environment that a person sets to give a key."""
        return key_variables(self.name)[-1]

    def stored(self) -> dict[str, Any]:
        """The entry of the setting `cloud_providers`, without what is as it would be anyway."""
        entry: dict[str, Any] = msgspec.to_builtins(self)
        kept = ("name", "base_url", "allow_insecure_http", "wire_format")
        return {key: value for key, value in entry.items() if key in kept or value not in ("", None)}


def key_variables(name: str) -> tuple[str, ...]:
    """The variables that may hold a provider's key, the one that counts first. Shells cannot set names with hyphens, so
    that underscores do as well."""
    exact = f"LEMONADE_{name.upper()}_API_KEY"
    plain = exact.replace("-", "_")
    return (exact,) if exact == plain else (exact, plain)


def is_key_variable(variable: str) -> bool:
    """Whether a variable of the environment may hold a key of ours."""
    found = _VARIABLE.fullmatch(variable)
    return found is not None and found[1].lower() not in RESERVED


def read(entry: Mapping[str, Any]) -> Provider:
    """The provider that an entry of the settings, or a request, describes.

    Raises:
        InvalidArgument: with `param` naming the field.
        InsecureHTTP: plain http, and nobody consented.
    """
    for secret in ("api_key", "key", "token"):
        if entry.get(secret):
            raise InvalidArgument(
                f"'{secret}' must not stand in the configuration: keys come by the environment or POST /v1/cloud/auth.",
                param=secret,
            )
    name = entry.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InvalidArgument(
            "'provider' must be 1 to 64 characters out of a-z, 0-9, - and _.",
            param="provider",
        )
    if name in RESERVED:
        raise InvalidArgument(f"'provider' must not be '{name}', which means something else.", param="provider")
    insecure = _flag(entry, "allow_insecure_http")
    wire = entry.get("wire_format") or "openai"
    if wire not in WIRES:
        raise InvalidArgument(f"'wire_format' must be one of: {', '.join(WIRES)}.", param="wire_format")
    header = entry.get("auth_header_name") or ""
    if not isinstance(header, str) or (header and (not _HEADER.fullmatch(header) or header.lower() in _TAKEN)):
        raise InvalidArgument("'auth_header_name' must be the name of a header for the key.", param="auth_header_name")
    prefix = entry.get("auth_header_prefix")
    if prefix is not None and (not isinstance(prefix, str) or not _PRINTABLE.fullmatch(prefix)):
        raise InvalidArgument(
            "'auth_header_prefix' must be at most 64 printable ASCII characters.", param="auth_header_prefix"
        )
    if entry.get("base_url") is None:
        raise MissingArgument("base_url")
    return Provider(
        name=name,
        base_url=_address(entry.get("base_url"), insecure=insecure),
        allow_insecure_http=insecure,
        auth_header_name=header,
        auth_header_prefix=prefix,
        wire_format=cast(Wire, wire),
    )


def check_key(key: str) -> str:
    """A key without the white space around it.

    Raises:
        InvalidArgument: it is empty, or no key can look like it; it is not repeated.
    """
    key = key.strip()
    if not _KEY.fullmatch(key):
        raise InvalidArgument("'api_key' must be printable ASCII characters without spaces.", param="api_key")
    return key


def _address(given: Any, *, insecure: bool) -> str:
    if not isinstance(given, str) or not given:
        raise InvalidArgument(
            "'base_url' must be the address of the API, such as https://api.example.com/v1.", param="base_url"
        )
    url: str = given.strip().rstrip("/")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https") or not url.isprintable() or " " in url or len(url) > 2048:
        raise InvalidArgument("'base_url' must begin with https:// (or http://) and name a host.", param="base_url")
    if parts.username is not None or parts.password is not None:
        raise InvalidArgument("'base_url' must not hold a user or a password.", param="base_url")
    if "?" in url or "#" in url:
        raise InvalidArgument("'base_url' must not have a query: paths are appended to it.", param="base_url")
    if parts.scheme == "http" and not insecure:
        raise InsecureHTTP(
            "'base_url' is plain http, which shows prompts and the key to everybody on the way. Use https, or consent "
            "with 'allow_insecure_http': true.",
            param="base_url",
        )
    return url


def _flag(entry: Mapping[str, Any], key: str) -> bool:
    value = entry.get(key)
    if value is not None and not isinstance(value, bool):
        raise InvalidArgument(f"'{key}' must be true or false.", param=key)
    return bool(value)

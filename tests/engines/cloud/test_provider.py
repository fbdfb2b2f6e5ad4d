from __future__ import annotations

from typing import Any

import pytest

from lemonade.engines.cloud.failures import InsecureHTTP
from lemonade.engines.cloud.provider import check_key, is_key_variable, key_variables, read
from lemonade.errors import InvalidArgument, MissingArgument

GOOD: dict[str, Any] = {"name": "acme", "base_url": "https://api.example.com/v1"}


def test_what_is_left_out_is_the_wires_own() -> None:
    provider = read({**GOOD, "base_url": "https://api.example.com/v1//"})
    assert provider.base_url == "https://api.example.com/v1"
    assert provider.header == ("Authorization", "Bearer ")
    assert read({**GOOD, "wire_format": "anthropic"}).header == ("x-api-key", "")


@pytest.mark.parametrize(
    ("given", "header"),
    [
        ({"auth_header_name": "api-key"}, ("api-key", "")),
        ({"auth_header_name": "authorization"}, ("authorization", "Bearer ")),
        ({"auth_header_prefix": "Token "}, ("Authorization", "Token ")),
        ({"auth_header_name": "X-Key", "auth_header_prefix": "k="}, ("X-Key", "k=")),
        ({"auth_header_name": "", "auth_header_prefix": ""}, ("Authorization", "")),
        ({"wire_format": "anthropic", "auth_header_name": "Authorization", "auth_header_prefix": "Bearer "}, None),
    ],
)
def test_other_headers(given: dict[str, str], header: tuple[str, str] | None) -> None:
    assert read({**GOOD, **given}).header == (header or ("Authorization", "Bearer "))


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"name": ""}, "provider"),
        ({"name": "Acme"}, "provider"),
        ({"name": "a.b"}, "provider"),
        ({"name": "a\n"}, "provider"),
        ({"name": "a" * 65}, "provider"),
        ({"name": 5}, "provider"),
        ({"name": "user"}, "provider"),
        ({"name": "admin"}, "provider"),
        ({"base_url": ""}, "base_url"),
        ({"base_url": 5}, "base_url"),
        ({"base_url": "api.example.com"}, "base_url"),
        ({"base_url": "ftp://api.example.com"}, "base_url"),
        ({"base_url": "file:///etc/passwd"}, "base_url"),
        ({"base_url": "https://"}, "base_url"),
        ({"base_url": "https://[::1"}, "base_url"),
        ({"base_url": "https://a:99999"}, "base_url"),
        ({"base_url": "https://user:sk-CANARY@api.example.com"}, "base_url"),
        ({"base_url": "https://api.example.com?key=sk-CANARY"}, "base_url"),
        ({"base_url": "https://api.example.com/#x"}, "base_url"),
        ({"base_url": "https://api.example.com/a b"}, "base_url"),
        ({"base_url": "https://api.example.com/\r\nx: y"}, "base_url"),
        ({"allow_insecure_http": "yes"}, "allow_insecure_http"),
        ({"wire_format": "soap"}, "wire_format"),
        ({"auth_header_name": "a b"}, "auth_header_name"),
        ({"auth_header_name": "Host"}, "auth_header_name"),
        ({"auth_header_name": "x\r\ny"}, "auth_header_name"),
        ({"auth_header_prefix": "x\r\ny"}, "auth_header_prefix"),
        ({"auth_header_prefix": 5}, "auth_header_prefix"),
        ({"api_key": "sk-CANARY"}, "api_key"),
    ],
)
def test_what_cannot_be(given: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        read({**GOOD, **given})
    assert refused.value.param == param
    assert "CANARY" not in str(refused.value.body())


def test_an_address_is_needed() -> None:
    with pytest.raises(MissingArgument):
        read({"name": "acme"})


@pytest.mark.parametrize("host", ["api.example.com", "127.0.0.1:8000", "localhost", "192.168.1.20", "[::1]:8000"])
def test_plain_http_only_by_consent(host: str) -> None:
    entry = {**GOOD, "base_url": f"http://{host}/v1"}
    with pytest.raises(InsecureHTTP) as refused:
        read(entry)
    assert (refused.value.status, refused.value.code) == (400, "insecure_http_requires_opt_in")
    with pytest.raises(InsecureHTTP):
        read({**entry, "allow_insecure_http": False})
    assert read({**entry, "allow_insecure_http": True}).base_url == entry["base_url"]


def test_where_keys_are_looked_for() -> None:
    assert key_variables("open-ai") == ("LEMONADE_OPEN-AI_API_KEY", "LEMONADE_OPEN_AI_API_KEY")
    assert key_variables("acme") == ("LEMONADE_ACME_API_KEY",)
    assert read({**GOOD, "name": "open-ai"}).variable == "LEMONADE_OPEN_AI_API_KEY"
    assert is_key_variable("LEMONADE_OPEN-AI_API_KEY")
    for other in ("LEMONADE_HOST", "LEMONADE_API_KEY", "LEMONADE_ADMIN_API_KEY", "OPENAI_API_KEY"):
        assert not is_key_variable(other)


@pytest.mark.parametrize("key", ["", "  ", "a b", "a\r\nx: y", "schlüssel", "a\0", "x" * 4097])
def test_what_is_no_key(key: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        check_key(key)
    assert refused.value.param == "api_key"
    assert key.strip() == "" or key.strip() not in refused.value.message


def test_white_space_around_a_key_is_overlooked() -> None:
    assert check_key(" sk-1\n") == "sk-1"


def test_only_what_was_said_is_stored() -> None:
    assert read(GOOD).stored() == {**GOOD, "allow_insecure_http": False, "wire_format": "openai"}
    assert read({**GOOD, "auth_header_name": "X-Key"}).stored()["auth_header_name"] == "X-Key"

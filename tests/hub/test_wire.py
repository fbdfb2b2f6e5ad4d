from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx2
import pytest
from huggingface_hub import set_client_factory
from huggingface_hub.utils._http import default_client_factory

from lemonade.errors import RegistryReplied
from lemonade.hub.wire import Wire, host, is_loopback, origin

Answer = Callable[[httpx2.Request], httpx2.Response]


@pytest.fixture
def answers() -> Iterator[Callable[[dict[str, str]], list[httpx2.Request]]]:
    """Sets where addresses redirect to; everything else answers 200. Gives the requests that came."""

    def set_up(redirects: dict[str, str]) -> list[httpx2.Request]:
        seen: list[httpx2.Request] = []

        def answer(request: httpx2.Request) -> httpx2.Response:
            seen.append(request)
            target = redirects.get(str(request.url))
            return httpx2.Response(302, headers={"location": target}) if target else httpx2.Response(200, text="ok")

        set_client_factory(lambda: httpx2.Client(transport=httpx2.MockTransport(answer)))
        return seen

    yield set_up
    set_client_factory(default_client_factory)


@pytest.mark.parametrize(
    ("endpoint", "url", "sent"),
    [
        ("https://hub.example", "https://hub.example/x", True),
        ("https://hub.example", "https://HUB.example:443/x", True),
        ("https://hub.example", "https://hub.example:8443/x", False),
        ("https://hub.example", "https://hub.example.evil.example/x", False),
        ("https://hub.example", "https://hub.example@evil.example/x", False),
        ("https://hub.example", "http://hub.example/x", False),
        ("http://mirror.lan", "http://mirror.lan/x", False),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/x", True),
        ("http://localhost:8080", "http://localhost:8080/x", True),
        ("http://[::1]:8080", "http://[::1]:8080/x", True),
    ],
)
def test_who_gets_the_token(
    answers: Callable[[dict[str, str]], list[httpx2.Request]], endpoint: str, url: str, sent: bool
) -> None:
    seen = answers({})
    with Wire(endpoint, "hf_CANARY").get(url) as response:
        assert response.status_code == 200
    assert ("hf_CANARY" in seen[0].headers.get("authorization", "")) is sent


def test_the_token_does_not_follow_a_redirect(answers: Callable[[dict[str, str]], list[httpx2.Request]]) -> None:
    seen = answers(
        {
            "https://hub.example/a": "/b",
            "https://hub.example/b": "https://cdn.example/c",
            "https://cdn.example/c": "https://hub.example/d",
        }
    )
    with Wire("https://hub.example", "hf_CANARY").get("https://hub.example/a", {"range": "bytes=5-"}):
        pass
    assert [("authorization" in request.headers, request.headers["range"]) for request in seen] == [
        (True, "bytes=5-"),
        (True, "bytes=5-"),
        (False, "bytes=5-"),
        (True, "bytes=5-"),
    ]


def test_no_way_from_https_to_http(answers: Callable[[dict[str, str]], list[httpx2.Request]]) -> None:
    seen = answers({"https://hub.example/a": "http://hub.example/b"})
    with (
        pytest.raises(RegistryReplied, match="unprotected"),
        Wire("https://hub.example", "t").get("https://hub.example/a"),
    ):
        pass
    assert len(seen) == 1


def test_redirects_in_a_circle(answers: Callable[[dict[str, str]], list[httpx2.Request]]) -> None:
    seen = answers({"https://hub.example/a": "https://hub.example/a"})
    with (
        pytest.raises(RegistryReplied, match="more than 8"),
        Wire("https://hub.example", None).get("https://hub.example/a"),
    ):
        pass
    assert len(seen) == 9


def test_names() -> None:
    assert origin("HTTPS://Hub.Example/x") == ("https", "hub.example", 443)
    assert host("https://user:secret@hub.example/x?signature=1") == "hub.example"
    assert host("http://127.0.0.1:8080/x") == "127.0.0.1:8080"
    assert is_loopback("::1") and is_loopback("a.localhost")
    assert not is_loopback("10.0.0.1") and not is_loopback("localhost.evil.example")

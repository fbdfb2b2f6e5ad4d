from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from tests.daemon import Daemon


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST.", "127.0.0.1", "127.0.0.1.", "[::1]", "127.0.0.2", "app.localhost", "localhost:1234"],
)
def test_loopback_names_pass(daemon: Daemon, host: str) -> None:
    assert daemon.get("/v1/health", headers={"Host": host}).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:13305", "0.0.0.0", "localhost.evil.example", "10.0.0.1"]
)
def test_an_unknown_host_is_refused_before_anything_else(daemon: Daemon, host: str) -> None:
    for path in ("/v1/health", "/live", "/nope", "/internal/config"):
        answer = daemon.get(path, headers={"Host": host})
        assert answer.status == 403
        assert "allowed_hosts" in answer.error["message"]


@pytest.mark.parametrize(
    "origin",
    ["http://localhost:3000", "https://127.0.0.1", "http://[::1]:5", "tauri://localhost", "file://", "app://x"],
)
def test_local_origins_are_echoed(daemon: Daemon, origin: str) -> None:
    answer = daemon.get("/v1/health", headers={"Origin": origin})
    assert answer.status == 200
    assert answer.headers["access-control-allow-origin"] == origin
    assert "Origin" in answer.headers["vary"]


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost@evil.example", "http://evil.example/localhost", "x"]
)
def test_foreign_origins_are_refused_for_every_method(daemon: Daemon, origin: str) -> None:
    for method in ("GET", "POST", "OPTIONS"):
        answer = daemon.ask(method, "/v1/health", headers={"Origin": origin})
        assert answer.status == 403
        assert "access-control-allow-origin" not in {name.lower() for name in answer.headers}


def test_a_rebound_name_is_no_own_page(daemon: Daemon) -> None:
    headers = {"Host": "evil.example", "Origin": "http://evil.example"}
    assert daemon.get("/v1/health", headers=headers).status == 403


def test_preflight(daemon: Daemon) -> None:
    headers = {"Origin": "http://localhost:1", "Access-Control-Request-Private-Network": "true"}
    answer = daemon.ask("OPTIONS", "/v1/chat/completions", headers=headers)
    assert (answer.status, answer.body) == (204, b"")
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert "Authorization" in answer.headers["access-control-allow-headers"]
    assert answer.headers["access-control-allow-private-network"] == "true"


@pytest.mark.parametrize("path", ["/v1/load", "/v1/unload", "/v1/pull", "/v1/delete", "/internal/set", "/internal/pin"])
def test_a_page_cannot_change_state_with_a_plain_form(daemon: Daemon, path: str) -> None:
    answer = daemon.post(path, b"{}", headers={"Content-Type": "text/plain"})
    assert answer.status == 415
    form = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "cross-site"}
    assert daemon.post(path, b"{}", headers=form).status == 415


def test_curl_without_a_content_type_works(daemon: Daemon) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert daemon.post("/v1/unload", b"{}", headers=form).status == 200


def test_configured_origins_and_hosts(make_daemon: Callable[..., Daemon]) -> None:
    config = {"allowed_origins": "https://app.example, null", "allowed_hosts": "box.local"}
    with make_daemon(config=config) as one:
        assert one.get("/v1/health", headers={"Origin": "https://app.example"}).status == 200
        assert one.get("/v1/health", headers={"Origin": "null"}).status == 200
        assert one.get("/v1/health", headers={"Origin": "https://app.example.evil"}).status == 403
        assert one.get("/v1/health", headers={"Host": "box.local:80"}).status == 200


def test_keys(make_daemon: Callable[..., Daemon]) -> None:
    key, admin = "sk-CANARY-1", "sk-CANARY-2"
    with make_daemon(env={"LEMONADE_API_KEY": key, "LEMONADE_ADMIN_API_KEY": admin}) as one:

        def status(path: str, **headers: str) -> int:
            return one.get(path, headers={name.replace("_", "-"): value for name, value in headers.items()}).status

        assert status("/live") == 200
        assert status("/v1/health") == 401
        assert status("/v1/nope") == 401
        for headers in (
            {"Authorization": f"Bearer {key}"},
            {"Authorization": f"bearer {key} "},
            {"X_Api_Key": key},
            {"Authorization": f"Bearer {admin}"},
        ):
            assert status("/v1/health", **headers) == 200, headers
        for headers in ({"Authorization": key}, {"Authorization": "Bearer "}, {"X_Api_Key": key + "x"}):
            assert status("/v1/health", **headers) == 401, headers
        assert status(f"/v1/health?api_key={key}") == 401
        assert status("/internal/config", Authorization=f"Bearer {key}") == 401
        assert status("/internal/config", Authorization=f"Bearer {admin}") == 200
        refused = one.get("/v1/health", headers={"Authorization": "Bearer sk-CANARY-3"})
        assert refused.error["message"] == "Invalid or missing API key"
        assert refused.headers["x-should-retry"] == "false"
        assert one.ask("OPTIONS", "/v1/health").status == 204
        assert "CANARY" not in one.log


def test_an_admin_key_alone_leaves_the_api_open(make_daemon: Callable[..., Daemon]) -> None:
    with make_daemon(env={"LEMONADE_ADMIN_API_KEY": "secret"}) as one:
        assert one.get("/v1/health").status == 200
        assert one.get("/internal/config").status == 401


def test_compressed_and_oversized_bodies(daemon: Daemon) -> None:
    packed = daemon.post("/v1/chat/completions", b"\x1f\x8b", headers={"Content-Encoding": "gzip"})
    assert packed.status == 415
    with socket.create_connection(("127.0.0.1", daemon.port)) as one:
        one.sendall(b"POST /v1/load HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n")
        assert one.recv(100).startswith(b"HTTP/1.1 413 ")

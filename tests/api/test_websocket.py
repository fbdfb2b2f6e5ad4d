"""WebSockets from outside: who gets one, and what ends it."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import aiohttp
import psutil
import pytest

from lemonade.api.websocket import subprotocol
from lemonade.listener import MAX_MESSAGE
from tests.daemon import Daemon, wait_for
from tests.speech import connected

KEY = "sesame-open-1234"
PATHS = ["/realtime", "/v1/realtime", "/v0/realtime", "/api/v1/realtime", "/api/v0/realtime"]


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with a key."""
    with Daemon(tmp_path_factory.mktemp("locked"), env={"LEMONADE_API_KEY": KEY}) as one:
        yield one


async def status(daemon: Daemon, path: str, **more: object) -> int:
    """What the handshake is answered with; 101 when it succeeds."""
    async with aiohttp.ClientSession() as session:
        try:
            async with session.ws_connect(daemon.url + path, **more) as opened:  # type: ignore[arg-type]
                await opened.close()
                return 101
        except aiohttp.WSServerHandshakeError as error:
            return error.status


@pytest.mark.parametrize("path", [*PATHS, "/logs/stream", "/v1/logs/stream", "/api/v0/logs/stream"])
async def test_every_prefix_and_none(daemon: Daemon, path: str) -> None:
    assert await status(daemon, path) == 101


@pytest.mark.parametrize("path", ["/nope", "/v1/models", "/v1/realtime/", "/internal/realtime", "/"])
async def test_other_paths_are_refused(daemon: Daemon, path: str) -> None:
    assert await status(daemon, path) == 404


def test_without_an_upgrade_it_is_told_what_it_is(daemon: Daemon) -> None:
    answer = daemon.get("/v1/realtime")
    assert answer.status == 404
    assert "WebSocket" in answer.error["message"]


def encoded(key: str) -> str:
    return base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")


GOOD = {
    "bearer": {"headers": {"Authorization": f"Bearer {KEY}"}},
    "x-api-key": {"headers": {"X-Api-Key": KEY}},
    "query": {"query": f"?api_key={KEY}"},
    "subprotocol": {"protocols": ["lemonade-realtime", f"bearer.{encoded(KEY)}"]},
    "subprotocol of openai": {"protocols": ["realtime", f"openai-insecure-api-key.{KEY}", "openai-beta.realtime-v1"]},
}
BAD = {
    "none": {},
    "wrong bearer": {"headers": {"Authorization": "Bearer wrong"}},
    "wrong query": {"query": "?api_key=wrong"},
    "wrong subprotocol": {"protocols": ["lemonade-realtime", f"bearer.{encoded('wrong')}"]},
    "broken subprotocol": {"protocols": ["lemonade-realtime", "bearer.$$$"]},
}


@pytest.mark.parametrize("path", ["/realtime", "/v1/realtime", "/logs/stream"])
@pytest.mark.parametrize("how", GOOD)
async def test_a_key_is_taken_in_every_way(locked: Daemon, path: str, how: str) -> None:
    more = dict(GOOD[how])
    assert await status(locked, path + str(more.pop("query", "")), **more) == 101
    assert KEY not in locked.log


@pytest.mark.parametrize("path", ["/realtime", "/v1/realtime", "/logs/stream", "/nope"])
@pytest.mark.parametrize("how", BAD)
async def test_without_the_key_there_is_no_connection(locked: Daemon, path: str, how: str) -> None:
    more = dict(BAD[how])
    assert await status(locked, path + str(more.pop("query", "")), **more) == 401


async def test_the_protocol_that_is_spoken_is_no_key(locked: Daemon) -> None:
    async with connected(locked, protocols=GOOD["subprotocol"]["protocols"]) as client:
        assert client.socket.protocol == "lemonade-realtime"
    async with connected(locked, protocols=GOOD["subprotocol of openai"]["protocols"]) as client:
        assert client.socket.protocol == "realtime"


def test_which_protocol_is_spoken() -> None:
    assert subprotocol(["x", "lemonade-realtime", "bearer.a"]) == "lemonade-realtime"
    assert subprotocol(["bearer.a"]) is None
    assert subprotocol([]) is None


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost.evil.example"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Origin": "http://localhost:3000"}, 101),
        ({"Origin": "tauri://localhost"}, 101),
        ({"Host": "localhost"}, 101),
    ],
    ids=str,
)
async def test_pages_from_elsewhere_are_refused(daemon: Daemon, headers: dict[str, str], wanted: int) -> None:
    assert await status(daemon, "/v1/realtime", headers=headers) == wanted


async def test_the_second_port_speaks_the_same(daemon: Daemon, locked: Daemon) -> None:
    for one, wanted in ((daemon, 101), (locked, 401)):
        headers = {"Authorization": f"Bearer {KEY}"}
        port = one.get("/v1/health", headers=headers).json()["websocket_port"]
        assert port != one.port
        async with aiohttp.ClientSession() as session:
            for host in ("127.0.0.1", "localhost"):
                try:
                    async with session.ws_connect(f"http://{host}:{port}/realtime") as opened:
                        assert (await opened.receive_json())["type"] == "session.created"
                        seen = 101
                except aiohttp.WSServerHandshakeError as error:
                    seen = error.status
                assert seen == wanted


# What is no WebSocket


def talk(port: int, data: bytes, seconds: float = 10) -> bytes:
    """All that comes back until the daemon closes."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as one:
        one.sendall(data)
        while piece := one.recv(65536):
            answer += piece
    return answer


def handshake(*lines: str, path: str = "/v1/realtime", method: str = "GET", version: str = "1.1") -> bytes:
    head = [f"{method} {path} HTTP/{version}", "Host: localhost", "Connection: Upgrade", "Upgrade: websocket", *lines]
    return "\r\n".join([*head, "", ""]).encode()


KEY_LINE = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
VERSION_LINE = "Sec-WebSocket-Version: 13"


@pytest.mark.parametrize(
    "head",
    [
        handshake("Sec-WebSocket-Key: short", VERSION_LINE),
        handshake(KEY_LINE, "Sec-WebSocket-Version: 8"),
        handshake(KEY_LINE),
        handshake(KEY_LINE, VERSION_LINE, *(f"X-{n}: y" for n in range(300))),
        handshake(KEY_LINE, VERSION_LINE, "X: " + "y" * 20_000),
        handshake(KEY_LINE, VERSION_LINE, "Sec-WebSocket-Protocol: ,,;"),
        handshake(KEY_LINE, VERSION_LINE, version="1.0"),
    ],
    ids=["key", "version", "no version", "many lines", "long line", "protocols", "old http"],
)
def test_a_broken_handshake_is_refused_in_json(daemon: Daemon, head: bytes) -> None:
    answer = talk(daemon.port, head)
    line, _, rest = answer.partition(b"\r\n")
    assert line.split()[1][:1] in (b"4", b"5")
    body = json.loads(rest.partition(b"\r\n\r\n")[2])
    assert body["error"]["message"]


def test_an_upgrade_of_another_kind_is_plain_http(daemon: Daemon) -> None:
    asked = b"GET /live HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, close\r\nUpgrade: h2c\r\n\r\n"
    assert talk(daemon.port, asked).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("name", ["Upgrade", "upgrade"])
def test_the_body_of_a_request_that_would_rather_be_http2_is_read(daemon: Daemon, name: str) -> None:
    body = b'{"model":"nope","messages":[{"role":"user","content":"upgrade: h2c"}]}'
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings, close\r\n"
        f"{name}: h2c\r\nHTTP2-Settings: AAMAAABk\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    assert b"'nope' was not found" in talk(daemon.port, head.encode() + body)


def frame(opcode: int, payload: bytes, *, final: bool = True) -> bytes:
    """A client's frame; its mask is zero."""
    size = len(payload)
    head = bytes([opcode | (0x80 if final else 0)])
    if size < 126:
        head += bytes([0x80 | size])
    elif size < 65536:
        head += bytes([0x80 | 126]) + struct.pack("!H", size)
    else:
        head += bytes([0x80 | 127]) + struct.pack("!Q", size)
    return head + bytes(4) + payload


def close_code(answer: bytes) -> int:
    """Of the last frame that the daemon sent."""
    at = answer.rindex(b"\x88")
    return int(struct.unpack("!H", answer[at + 2 : at + 4])[0])


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(1, b"\xff\xfe"), 1007),
        (frame(1, b"\xc3", final=False) + frame(0, b"x"), 1007),
        (frame(3, b"x"), 1002),
        (frame(0, b"x"), 1002),
        (frame(9, b"x" * 200), 1002),
        (b"\x81\x01x", 1002),
        (b"\xc1\x80" + bytes(4), 1002),
        (frame(1, b"x" * (MAX_MESSAGE + 1)), 1009),
        (frame(1, b"x" * MAX_MESSAGE, final=False) + frame(0, b"x"), 1009),
        (b"\x81\xff" + struct.pack("!Q", 1 << 62) + bytes(4), 1009),
    ],
    ids=["utf-8", "utf-8 in parts", "opcode", "lonely", "ping", "no mask", "compressed", "huge", "huge parts", "lie"],
)
def test_what_is_no_message_ends_the_connection(daemon: Daemon, sent: bytes, code: int) -> None:
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=10) as one:
        one.sendall(handshake(KEY_LINE, VERSION_LINE, path="/logs/stream"))
        answer = one.recv(4096)
        assert answer.startswith(b"HTTP/1.1 101")
        one.sendall(sent)
        answer = b""
        while piece := one.recv(65536):
            answer += piece
    assert close_code(answer) == code
    assert "Traceback" not in daemon.log


async def test_a_message_in_many_frames_is_put_together(daemon: Daemon) -> None:
    parts = [b'{"type":"logs.', b"subscribe", b'","x":"', b"y" * 3_000_000, b'"}']
    reader, writer = await asyncio.open_connection("127.0.0.1", daemon.port)
    writer.write(handshake(KEY_LINE, VERSION_LINE, path="/logs/stream"))
    await reader.readuntil(b"\r\n\r\n")
    writer.write(frame(1, parts[0], final=False))
    for part in parts[1:-1]:
        writer.write(frame(0, part, final=False) + frame(9, b"still there?"))
    writer.write(frame(0, parts[-1]))
    seen = b""
    while b"logs.snapshot" not in seen:
        seen += await asyncio.wait_for(reader.read(65536), 10)
    assert seen.count(b"still there?") == 3
    writer.close()


async def test_a_client_that_does_not_read_does_not_fill_the_memory(daemon: Daemon) -> None:
    assert daemon.process is not None
    process = psutil.Process(daemon.process.pid)
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=10) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.sendall(handshake(KEY_LINE, VERSION_LINE, path="/v1/realtime"))
        await asyncio.sleep(0.2)
        before = process.memory_info().rss
        one.settimeout(1)
        try:
            for _ in range(400):
                one.sendall(frame(9, b"x" * 120) * 500 + frame(1, b"no json") * 500)
        except TimeoutError:
            pass  # the daemon has stopped to read
        await asyncio.sleep(0.2)
        assert process.memory_info().rss - before < 30e6
    assert daemon.get("/live").status == 200


def test_nothing_stays_of_connections_that_broke(daemon: Daemon) -> None:
    assert daemon.process is not None
    process = psutil.Process(daemon.process.pid)

    def sockets() -> int:
        return len([one for one in process.net_connections("tcp") if one.status == "ESTABLISHED"])

    before = sockets()
    for _ in range(50):
        one = socket.create_connection(("127.0.0.1", daemon.port))
        one.sendall(handshake(KEY_LINE, VERSION_LINE, path="/v1/realtime"))
        one.recv(4096)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.close()
    wait_for(lambda: sockets() <= before)


async def test_two_hundred_idle_connections(daemon: Daemon) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        many = await asyncio.gather(*(session.ws_connect(daemon.url + "/realtime") for _ in range(200)))
        ids = {(await one.receive_json())["session"]["id"] for one in many}
        assert len(ids) == 200
        began = time.monotonic()
        assert daemon.get("/v1/health").status == 200
        assert time.monotonic() - began < 10
        await asyncio.gather(*(one.close() for one in many))


# The daemon around them


def test_the_library_comes_with_the_first_connection(make_daemon: Callable[..., Daemon]) -> None:
    if not Path("/proc/self/maps").exists():
        pytest.skip("there is no /proc")

    def imported(one: Daemon) -> bool:
        assert one.process is not None
        return "websockets" in Path(f"/proc/{one.process.pid}/maps").read_text()

    with make_daemon() as one:
        one.get("/v1/health")
        one.get("/v1/realtime")
        assert not imported(one)
        assert asyncio.run(status(one, "/v1/realtime")) == 101
        assert imported(one), "its part in C is seen"


def test_open_connections_do_not_hold_a_daemon_that_ends(make_daemon: Callable[..., Daemon]) -> None:
    with make_daemon() as one:

        async def end() -> list[int | None]:
            codes: list[int | None] = []
            async with (
                connected(one) as idle,
                connected(one, path="/realtime") as other,
                aiohttp.ClientSession() as web,
                web.ws_connect(one.url + "/logs/stream") as logs,
            ):
                await logs.send_json({"type": "logs.subscribe"})
                await logs.receive()
                assert one.process is not None
                one.process.terminate()
                for each in (idle.socket, other.socket, logs):
                    while (await each.receive(10)).type is aiohttp.WSMsgType.TEXT:
                        pass
                    codes.append(each.close_code)
            return codes

        assert asyncio.run(end()) == [1012, 1012, 1012]
        assert one.process is not None
        assert one.process.wait(10) == 0
    assert "Traceback" not in one.log


def test_the_second_port_can_be_chosen_and_moved(make_daemon: Callable[..., Daemon]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        with make_daemon(config={"websocket_port": number}) as one:
            assert one.get("/v1/health").json()["websocket_port"] is None, "it is taken, and the daemon runs without"
            assert one.post("/internal/set", {"websocket_port": 0}).status == 200
            port = wait_for(lambda: one.get("/v1/health").json()["websocket_port"])
            with socket.create_connection(("127.0.0.1", port)):
                pass
            taken.close()
            assert one.post("/internal/set", {"websocket_port": number}).status == 200
            wait_for(lambda: one.get("/v1/health").json()["websocket_port"] == number)
            with pytest.raises(OSError):
                socket.create_connection(("127.0.0.1", port))
            assert one.get("/live").status == 200

"""`WS /v1/realtime` from outside, with the fake engine."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

import aiohttp
import psutil
import pytest

from lemonade.inference.realtime.messages import SERVER_MESSAGES
from tests.daemon import Daemon, alive, wait_for
from tests.speech import Client, add_listener, connected, pieces, silence, voice

TALK = silence(400) + voice(900) + silence(1100) + voice(500) + silence(1200)


@pytest.fixture(scope="module")
def ear(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with the model `ear`."""
    with Daemon(tmp_path_factory.mktemp("ear")) as one:
        add_listener(one)
        one.add_model("chat")
        yield one


def check(event: dict[str, Any]) -> None:
    """Every event has the fields of its declaration, and no others."""
    (declared,) = (one for one in SERVER_MESSAGES if one.__struct_config__.tag == event["type"])
    assert set(event) == {"type", *declared.__struct_fields__}


async def test_speech_becomes_text(ear: Daemon) -> None:
    ear.post("/v1/unload")
    async with connected(ear, "model=ear") as client:
        await client.append(TALK, 85)
        first = await client.event("completed")
        second = await client.event("completed")
        await client.nothing()
    for item in (first["item_id"], second["item_id"]):
        told = [event["type"].rpartition(".")[2] for event in client.seen if event.get("item_id") == item]
        assert [kind for kind in told if kind != "delta"] == ["speech_started", "speech_stopped", "completed"]
    assert first["item_id"] != second["item_id"]
    assert [first["transcript"], second["transcript"]] == ["2080 ms", "1600 ms"]
    for event in client.seen:
        check(event)
    paths = [request["path"] for request in ear.seen("ear")["requests"]]
    assert paths.count("/pcm?rate=16000") == 2
    assert set(paths) <= {"/pcm?rate=16000", "/pcm?rate=16000&draft=1"}
    assert ear.entry("ear")["is_busy"] is False, "no lease stays"


@pytest.mark.parametrize("milliseconds", [20, 256, 1000, 10_000])
async def test_the_size_of_messages_does_not_matter(ear: Daemon, milliseconds: int) -> None:
    async with connected(ear, "model=ear") as client:
        await client.append(TALK, milliseconds)
        said = [(await client.event("completed"))["transcript"] for _ in range(2)]
        edges = [event for event in client.seen if "speech_st" in event["type"]]
    assert said == ["2080 ms", "1600 ms"]
    assert [event.get("audio_start_ms", event.get("audio_end_ms")) for event in edges] == [100, 2180, 2180, 3780]


async def test_messages_of_any_size_are_cut_alike(ear: Daemon) -> None:
    async with connected(ear, "model=ear") as client:
        for piece in pieces(TALK, 1):
            await client.send("input_audio_buffer.append", audio=base64.b64encode(piece).decode())
        assert (await client.event("completed"))["transcript"] == "2080 ms"


async def test_the_model_can_be_named_later_and_by_an_alias(ear: Daemon) -> None:
    assert ear.post("/internal/aliases", {"alias": "whisper-1", "target": "ear"}).status == 200
    async with connected(ear) as client:
        updated = await client.update(model="whisper-1", turn_detection=None)
        assert updated["session"]["model"] == "whisper-1"
        assert updated["session"]["turn_detection"] is None
        await client.append(voice(300))
        await client.send("input_audio_buffer.commit")
        assert (await client.event("completed"))["transcript"] == "500 ms", "short pieces are padded"


async def test_the_newer_shape_of_sessions(ear: Daemon) -> None:
    async with connected(ear) as client:
        await client.send(
            "session.update",
            session={
                "type": "transcription",
                "audio": {
                    "input": {
                        "format": {"type": "audio/pcm", "rate": 24000},
                        "transcription": {"model": "ear", "language": "en"},
                        "turn_detection": {"type": "server_vad", "threshold": 0.5, "silence_duration_ms": 400},
                        "noise_reduction": {"type": "near_field"},
                    }
                },
                "include": ["item.input_audio_transcription.logprobs"],
            },
        )
        updated = await client.event("session.updated")
        assert updated["session"]["audio"]["input"]["format"] == {"type": "audio/pcm", "rate": 24000}
        talk = voice(1000, rate=24000) + silence(700, rate=24000)
        await client.append(talk, rate=24000)
        done = await client.event("completed")
    assert done["transcript"] == f"{round(done['usage']['seconds'] * 1000)} ms"
    assert ear.seen("ear")["requests"][-1]["path"] == "/pcm?rate=24000&language=en"


async def test_clear(ear: Daemon) -> None:
    async with connected(ear, "model=ear") as client:
        await client.append(voice(600))
        await client.event("speech_started")
        await client.send("input_audio_buffer.clear")
        await client.event("cleared")
        await client.append(silence(1500))
        await client.nothing()


GARBAGE: list[tuple[Any, dict[str, Any]]] = [
    ("no json", {"message": "Invalid JSON"}),
    ("[]", {"message": "Invalid JSON"}),
    ('"x"', {"message": "Invalid JSON"}),
    ("", {"message": "Invalid JSON"}),
    ("[" * 100_000, {"message": "Invalid JSON"}),
    ("{}", {"message": "Unknown message type: None"}),
    ('{"type":"response.create"}', {"message": "Unknown message type: response.create"}),
    ('{"type":5}', {"message": "Unknown message type: 5"}),
    ('{"type":{},"event_id":"e"}', {"message": "'type' must be a string", "event_id": "e"}),
    (f'{{"type":{200 * "["}{200 * "]"}}}', {"message": "'type' must be a string"}),
    ('{"type":"input_audio_buffer.append","event_id":"e"}', {"param": "audio", "event_id": "e"}),
    ('{"type":"input_audio_buffer.append","audio":5,"event_id":"e"}', {"param": "audio", "event_id": "e"}),
    ('{"type":"input_audio_buffer.append","audio":"%%%","event_id":"e"}', {"param": "audio", "event_id": "e"}),
    ('{"type":"input_audio_buffer.append","audio":"YWJj","event_id":"e"}', {"param": "audio", "event_id": "e"}),
    ('{"type":"input_audio_buffer.append","audio":"YWI=","x":}', {"message": "Invalid JSON"}),
    ('{"type":"session.update","event_id":"e"}', {"param": "session", "event_id": "e"}),
    ('{"type":"session.update","session":5}', {"param": "session"}),
    ('{"type":"session.update","session":{"model":5}}', {"param": "session.model"}),
    ('{"type":"session.update","session":{"model":"chat"}}', {"param": "model"}),
    ('{"type":"session.update","session":{"model":"nope"}}', {"code": "model_not_found"}),
    (
        '{"type":"session.update","session":{"turn_detection":{"threshold":-1}}}',
        {"param": "session.turn_detection.threshold"},
    ),
    (
        '{"type":"session.update","session":{"turn_detection":{"silence_duration_ms":1e9}}}',
        {"param": "session.turn_detection.silence_duration_ms"},
    ),
    (
        '{"type":"session.update","session":{"audio":{"input":{"format":{"rate":8000}}}}}',
        {"param": "session.audio.input.format.rate"},
    ),
    ('{"type":"input_audio_buffer.commit","event_id":"e"}', {"code": "input_audio_buffer_commit_empty"}),
    (b"\x00\x01", {"message": "Messages are JSON texts"}),
]


async def test_garbage_is_an_error_and_the_session_lives(ear: Daemon) -> None:
    async with connected(ear, "model=ear") as client:
        for message, wanted in GARBAGE:
            if isinstance(message, bytes):
                await client.socket.send_bytes(message)
            else:
                await client.socket.send_str(message)
            event = await client.next()
            check(event)
            assert event["type"] == "error", message
            for key, value in wanted.items():
                assert str(event["error"][key]).startswith(value), (message, event)
            assert event["error"]["type"] == ("model_not_found" if "nope" in str(message) else "invalid_request_error")
        await client.append(voice(500))
        await client.send("input_audio_buffer.commit")
        assert (await client.event("completed"))["transcript"] == "500 ms"
    assert "Traceback" not in ear.log


@pytest.mark.parametrize("model", ["nope", "chat"])
async def test_a_model_that_cannot_serve_is_told_at_once(ear: Daemon, model: str) -> None:
    async with connected(ear, f"model={model}") as client:
        error = (await client.next())["error"]
        assert model in error["message"]
        await client.append(voice(500))
        await client.send("input_audio_buffer.commit")
        assert (await client.event("error"))["error"]["message"].startswith("Transcription failed: ")
        assert (await client.update(model="ear"))["type"] == "session.updated"


async def test_an_engine_that_dies_is_started_again(ear: Daemon) -> None:
    async with connected(ear, "model=ear") as client:
        await client.append(voice(500))
        await client.send("input_audio_buffer.commit")
        await client.event("completed")
        psutil.Process(ear.entry("ear")["pid"]).kill()
        await client.append(voice(600))
        await client.send("input_audio_buffer.commit")
        assert (await client.event("completed"))["transcript"] == "600 ms"


async def test_an_engine_that_fails_is_told_of(ear: Daemon) -> None:
    async with connected(ear, "model=ear") as client:
        await client.append(voice(500))
        await client.send("input_audio_buffer.commit")
        await client.event("completed")
        ear.switch("ear", error={"status": 500, "json": {"error": {"message": "no ear", "type": "server_error"}}})
        await client.append(voice(500))
        await client.send("input_audio_buffer.commit")
        failed = await client.event("failed", seconds=20)
        check(failed)
        error = await client.event("error")
        assert error["error"]["message"] == "Transcription failed: no ear"
        assert error["error"]["item_id"] == failed["item_id"]
        ear.switch("ear")
        await client.append(voice(500))
        await client.send("input_audio_buffer.commit")
        await client.event("completed")


STATES: dict[str, list[Any]] = {
    "greeted": [],
    "silent": [silence(500)],
    "speaking": [voice(700)],
    "preview": [voice(2500)],
    "transcribing": [voice(700), "commit"],
    "turns waiting": [voice(700) + silence(1000) + voice(700) + silence(1000) + voice(700)],
    "half a frame": [voice(300), None],
}


@pytest.mark.parametrize("state", STATES)
async def test_a_client_that_leaves_leaves_nothing(ear: Daemon, state: str) -> None:
    ear.post("/v1/load", {"model_name": "ear"})
    ear.switch("ear", interval=5)
    async with aiohttp.ClientSession() as session:
        socket = await session.ws_connect(ear.url + "/v1/realtime?model=ear")
        client = Client(socket)
        await client.next()
        transport = socket._response.connection.transport  # type: ignore[union-attr]
        for step in STATES[state]:
            if isinstance(step, bytes):
                await client.append(step, 500)
            elif step is None:
                transport.write(b"\x81\xfe\xff\xff")
            else:
                await client.send(f"input_audio_buffer.{step}")
        await asyncio.sleep(0.1)
        transport.abort()
    await asyncio.to_thread(wait_for, lambda: not ear.entry("ear")["is_busy"], 3)
    await asyncio.to_thread(wait_for, lambda: ear.seen("ear")["in_flight"] == 0, 3)
    ear.switch("ear")
    assert "Traceback" not in ear.log


async def test_fifty_idle_and_four_speaking(ear: Daemon) -> None:
    ear.post("/v1/load", {"model_name": "ear"})
    ear.switch("ear", interval=0.02)

    async def speak(client: Client) -> list[str]:
        await client.append(TALK, 100)
        return [(await client.event("completed"))["transcript"] for _ in range(2)]

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        sockets = [await session.ws_connect(ear.url + "/v1/realtime?model=ear") for _ in range(54)]
        clients = [Client(socket) for socket in sockets]
        for client in clients:
            await client.next()
        for client in clients[4:]:
            await client.append(silence(300))
        said = await asyncio.gather(*(speak(client) for client in clients[:4]))
        assert said == [["2080 ms", "1600 ms"]] * 4
        for client in clients[4:]:
            await client.nothing(0.001)
        await asyncio.gather(*(socket.close() for socket in sockets))
    assert await asyncio.to_thread(lambda: ear.get("/v1/health").status) == 200
    ear.switch("ear")


async def test_the_model_is_loaded_with_the_first_audio(make_daemon: Callable[..., Daemon]) -> None:
    one = make_daemon(switches={"slow_start": 0.5})
    one.start()
    add_listener(one)
    async with connected(one, "model=ear") as client:
        await client.nothing(0.3)
        assert one.loaded() == []
        await client.append(silence(100))
        await asyncio.to_thread(wait_for, lambda: one.loaded())
        await client.append(voice(500) + silence(1000))
        await client.event("completed")


async def test_a_turn_under_way_does_not_hold_a_daemon_that_ends(make_daemon: Callable[..., Daemon]) -> None:
    one = make_daemon(switches={"interval": 30})
    one.start()
    add_listener(one)
    async with connected(one, "model=ear") as client:
        await client.append(voice(500))
        await client.send("input_audio_buffer.commit")
        await client.event("committed")
        await asyncio.to_thread(wait_for, lambda: one.loaded() and one.seen("ear")["in_flight"])
        stopped = asyncio.create_task(asyncio.to_thread(one.stop, seconds=10))
        with pytest.raises(AssertionError):
            await client.next()
        assert client.socket.close_code == 1012
        assert await stopped == 0
    assert not any(alive(pid) for pid in one.starts)
    assert "Traceback" not in one.log


async def test_ten_thousand_tiny_messages(ear: Daemon) -> None:
    async with connected(ear, "model=ear") as client:
        await client.update(turn_detection=None)
        message = json.dumps({"type": "input_audio_buffer.append", "audio": base64.b64encode(bytes(2)).decode()})
        for _ in range(10_000):
            await client.socket.send_str(message)
        await client.send("input_audio_buffer.commit")
        assert (await client.event("completed"))["usage"]["seconds"] == round(10_000 / 16000, 3)


async def test_the_size_of_a_piece(ear: Daemon) -> None:
    async with connected(ear, "model=ear") as client:
        await client.update(turn_detection=None)
        long = bytes(11 * 1024 * 1024)
        await client.send("input_audio_buffer.append", audio=base64.b64encode(long).decode())
        await client.send("input_audio_buffer.commit")
        done = await client.event("completed")
        assert done["usage"]["seconds"] == round(len(long) / 32000, 3)
        with pytest.raises((AssertionError, ConnectionError)):
            await client.send("input_audio_buffer.append", audio="A" * 17 * 1024 * 1024)
            await client.next()
        assert client.socket.close_code == 1009


def test_the_reference_names_every_message(ear: Daemon) -> None:
    page = ear.get("/docs").body.decode()
    for message in SERVER_MESSAGES:
        assert f"<code>{message.__struct_config__.tag}</code>" in page
    assert "/v1/realtime" in page
    assert "realtime" not in json.dumps(ear.get("/openapi.json").json()["paths"])

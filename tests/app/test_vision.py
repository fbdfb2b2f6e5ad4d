"""Pictures and sounds on their whole way: a daemon, llama.cpp itself, and random weights for eyes and ears."""

from __future__ import annotations

import base64
import http.server
import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.daemon import Answer, Daemon, gguf
from tests.inference.images import data_url, png, wav
from tests.tiny_models import PATCH, ear, projector, text_model

MIB = 2**20
TEXT = {"type": "text", "text": "what is this?"}


def sound(data: bytes, kind: str = "wav") -> dict[str, Any]:
    return {"type": "input_audio", "input_audio": {"data": base64.b64encode(data).decode(), "format": kind}}


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def ask(daemon: Daemon, model: str, *parts: dict[str, Any], **more: Any) -> Answer:
    messages = [{"role": "user", "content": [TEXT, *parts]}]
    return daemon.post("/v1/chat/completions", {"model": model, "messages": messages, "max_tokens": 8, **more})


def refused(answer: Answer, part: int = 1) -> str:
    assert answer.status == 400
    assert answer.error["code"] == "invalid_argument"
    assert answer.error["param"] == f"messages[0].content[{part}]"
    assert len(answer.body) < 2000
    return str(answer.error["message"])


def add_seeing_model(daemon: Daemon, main: bytes, mmproj: bytes) -> Path:
    folder = daemon.models / "Eyes"
    folder.mkdir()
    (folder / "eyes.gguf").write_bytes(main)
    (folder / "mmproj-eyes.gguf").write_bytes(mmproj)
    return folder


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with the models `Eyes` and `blind`, and no fake engine."""
    one = Daemon(tmp_path_factory.mktemp("seeing"), fake_engine=False)
    add_seeing_model(one, text_model().read_bytes(), projector().read_bytes())
    (one.models / "blind.gguf").write_bytes(text_model().read_bytes())
    with one:
        yield one


@pytest.fixture(scope="module")
def checking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with fake engines, for what must not reach an engine."""
    one = Daemon(tmp_path_factory.mktemp("checking"))
    add_seeing_model(one, gguf({"general.architecture": "llama"}), gguf({"general.architecture": "clip"}))
    one.add_model("blind")
    with one:
        yield one


@pytest.mark.real
def test_a_model_sees(seeing: Daemon) -> None:
    tokens = []
    for side in (0, 4, 8):
        answer = ask(seeing, "Eyes", *([image(data_url(png(side * PATCH, side * PATCH)))] if side else []))
        assert answer.status == 200, answer.body
        assert answer.json()["choices"][0]["message"]["content"].strip()
        tokens.append(answer.json()["usage"]["prompt_tokens"])
    assert tokens[0] + 16 <= tokens[1] < tokens[1] + 48 <= tokens[2]
    streamed = ask(seeing, "Eyes", image(data_url(png(64, 64))), stream=True)
    assert streamed.body.endswith(b"data: [DONE]\n\n")


@pytest.mark.real
def test_every_format_is_seen(seeing: Daemon) -> None:
    from PIL import Image

    said = []
    for kind in ("PNG", "BMP", "GIF", "WEBP", "JPEG"):
        made = io.BytesIO()
        with Image.new("RGB", (64, 64), "orange") as picture:
            picture.save(made, kind, lossless=True)
        answer = ask(seeing, "Eyes", image(data_url(made.getvalue(), f"image/{kind.lower()}")), temperature=0)
        assert answer.status == 200, (kind, answer.body)
        said.append(answer.json()["choices"][0]["message"]["content"])
    assert len(set(said[:4])) == 1, "the same pixels, which JPEG may change a little"


@pytest.mark.real
def test_a_model_hears(seeing: Daemon) -> None:
    definition = {
        "model_name": "user.Ears",
        "recipe": "llamacpp",
        "source": "local_path",
        "checkpoints": {"main": str(text_model()), "mmproj": str(ear())},
        "labels": ["chat", "chat-transcription"],
    }
    assert seeing.post("/v1/pull", definition).status == 200
    assert "cannot see" in refused(ask(seeing, "Ears", image(data_url(png()))))
    silent = ask(seeing, "Ears").json()["usage"]["prompt_tokens"]
    for seconds, pieces in ((1, 1), (40, 2)):
        answer = ask(seeing, "Ears", sound(wav(seconds)), ctx_size=8192)
        assert answer.status == 200, answer.body
        assert answer.json()["choices"][0]["message"]["content"].strip()
        # 750 tokens for each half minute that has begun.
        assert answer.json()["usage"]["prompt_tokens"] // 750 == pieces
    assert silent < 750


@pytest.mark.real
def test_a_picture_that_is_damaged_behind_its_head(seeing: Daemon) -> None:
    answer = ask(seeing, "Eyes", image(data_url(png(64, 64)[:60])))
    assert answer.status == 400
    assert ask(seeing, "Eyes").status == 200


def test_the_blind_say_so_without_being_loaded(checking: Daemon) -> None:
    assert "'blind' cannot see" in refused(ask(checking, "blind", image(data_url(png()))))
    assert "cannot hear" in refused(ask(checking, "blind", sound(wav())))
    assert "cannot hear" in refused(ask(checking, "Eyes", sound(wav())))
    assert checking.starts == []


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://localhost/a.png",
        "data:text/html;base64,aGk=",
        "data:image/png;base64,aG\nk=",
        data_url(png(declared=(40000, 40000)) + bytes(5 * MIB)),
        data_url(b"<svg/>", "image/svg+xml"),
    ],
    ids=lambda url: url[:24],
)
def test_what_never_reaches_an_engine(checking: Daemon, url: str) -> None:
    refused(ask(checking, "Eyes", image(url)))
    refused(ask(checking, "Eyes", {"type": "video_url", "video_url": {"url": url}}))
    assert checking.starts == []


def test_a_flood_of_pictures(checking: Daemon) -> None:
    assert "at most 100" in refused(ask(checking, "Eyes", *[image(data_url(png()))] * 500), part=101)


def test_a_huge_data_url_leaves_no_trace(checking: Daemon) -> None:
    assert checking.process is not None
    process = psutil.Process(checking.process.pid)
    before = process.memory_info().rss
    for _ in range(3):
        assert "larger than 32 MiB" in refused(
            ask(checking, "Eyes", image("data:image/png;base64," + "QUJD" * 15_000_000))
        )
    assert process.memory_info().rss - before < 50 * MIB
    assert checking.starts == []
    assert "QUJDQUJD" not in checking.log
    assert max(map(len, checking.log.splitlines()), default=0) < 2000


@pytest.fixture
def inside() -> Iterator[tuple[int, list[str]]]:
    """A web server in the daemon's network, and what it was asked."""
    seen: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.path)
            self.send_response(200)
            self.send_header("Content-Type", "image/png")
            self.end_headers()
            self.wfile.write(png())

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server.server_address[1], seen
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("allowed", [False, True])
def test_addresses_inside_are_not_fetched(checking: Daemon, inside: tuple[int, list[str]], allowed: bool) -> None:
    port, seen = inside
    assert checking.post("/internal/set", {"allow_remote_images": allowed}).status == 200
    try:
        for host in ("127.0.0.1", "localhost", "0.0.0.0", "[::ffff:127.0.0.1]", "2130706433"):
            message = refused(ask(checking, "Eyes", image(f"http://{host}:{port}/a.png")))
            expected = "cannot be fetched" if allowed else "`allow_remote_images`"
            assert expected in message
        assert checking.post("/internal/set", {"offline": True}).status == 200
        assert "`offline`" in refused(ask(checking, "Eyes", image(f"http://127.0.0.1:{port}/a.png")))
    finally:
        checking.post("/internal/set", {"allow_remote_images": False, "offline": False})
    assert seen == []
    assert checking.starts == []


@pytest.mark.parametrize(
    "item",
    [
        {"role": "user", "content": [{"type": "input_image", "image_url": "{}"}]},
        {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_image", "image_url": "{}"}]},
        {
            "type": "function_call_output",
            "call_id": "1",
            "content": [],
            "output": [{"type": "input_image", "image_url": "{}"}],
        },
    ],
    ids=["message", "output", "both"],
)
def test_responses_fetch_nothing_either(checking: Daemon, inside: tuple[int, list[str]], item: dict[str, Any]) -> None:
    port, seen = inside
    raw = json.dumps({"model": "Eyes", "input": [item]}).replace("{}", f"http://127.0.0.1:{port}/a.png")
    answer = checking.post("/v1/responses", raw.encode())
    assert (answer.status, answer.error["code"]) == (400, "invalid_argument")
    assert seen == []
    assert checking.starts == []


def test_the_engine_gets_the_picture_as_it_came(make_daemon: Any) -> None:
    daemon = make_daemon()
    add_seeing_model(daemon, gguf({"general.architecture": "llama"}), gguf({"general.architecture": "clip"}))
    with daemon:
        picture = image(data_url(png() + bytes(300_000)))
        assert ask(daemon, "Eyes", picture).status == 200
        body = daemon.record()["requests"][-1]["body"]
        body = json.loads(body) if isinstance(body, str) else body
        assert body["messages"][0]["content"] == [TEXT, picture]
        assert "--mmproj" in daemon.record()["argv"]


def test_a_projector_that_vanishes(make_daemon: Any) -> None:
    daemon = make_daemon()
    folder = add_seeing_model(daemon, gguf({"general.architecture": "llama"}), gguf({"general.architecture": "clip"}))
    with daemon:
        assert ask(daemon, "Eyes", image(data_url(png()))).status == 200
        assert daemon.post("/v1/unload", {"model_name": "Eyes"}).status == 200
        (folder / "mmproj-eyes.gguf").unlink()
        answer = ask(daemon, "Eyes", image(data_url(png())))
        assert answer.status != 200
        # The folder is looked at by itself, too: then the model is one without a projector.
        said = answer.error["message"]
        assert "The files of 'Eyes' are not where they were" in said or "without an `mmproj` file" in said
        assert len(daemon.starts) == 1

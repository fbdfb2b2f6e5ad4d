from __future__ import annotations

import contextlib
import socket
import threading

import pytest

from lemonade.errors import RegistryUnreachable
from lemonade.hub.search import search
from tests.daemon import Daemon
from tests.hub.fake_hub import FakeHub


@pytest.fixture(scope="module", autouse=True)
def repositories(hub: FakeHub) -> None:
    for name in ("o/qwen", "owner/qwen-large-model", "long-owner/my-qwen", "qwenlab/other"):
        hub.write(name, "m-Q8_0.gguf", b"GGUF")
    hub.write("plain/qwen-plain", "model.safetensors", b"x")
    hub.write("art/qwen-picture", "m-Q8_0.gguf", b"GGUF")


@pytest.mark.parametrize("source", ["huggingface", "hf"])
def test_the_best_come_first(site: Daemon, source: str) -> None:
    answer = site.get(f"/v1/registry/search?query=qwen&source={source}").json()
    found = [each["repository_id"] for each in answer["results"]]
    names = ["o/qwen", "owner/qwen-large-model", "plain/qwen-plain", "long-owner/my-qwen", "qwenlab/other"]
    assert found == names, "pictures are left out"
    assert (answer["source"], answer["query"], answer["total"]) == ("huggingface", "qwen", 5)
    assert answer["results"][0] == {
        "repository_id": "o/qwen",
        "display_name": "qwen",
        "source": "huggingface",
        "repository_type": "model",
        "description": "",
        "tags": ["gguf"],
        "task": "text-generation",
        "downloads": 6,
        "likes": 1,
        "has_gguf": True,
    }


def test_only_gguf(site: Daemon) -> None:
    answer = site.get("/v1/registry/search?q=qwen&format=gguf&limit=2").json()
    assert (answer["format"], answer["total"]) == ("gguf", 2)
    assert all(each["has_gguf"] for each in answer["results"])


def test_modelscope(site: Daemon) -> None:
    answer = site.get("/v1/registry/search?query=qwen&source=ms").json()
    assert answer["source"] == "modelscope"
    assert answer["results"][0]["repository_id"] == "o/qwen"
    assert {each["source"] for each in answer["results"]} == {"modelscope"}


@pytest.mark.parametrize(
    ("query", "code", "param"),
    [
        ("", "missing_argument", "query"),
        ("?query=ab", "invalid_argument", "query"),
        ("?query=%20%20ab%20", "invalid_argument", "query"),
        ("?query=qwen&source=nope", "invalid_argument", "source"),
        ("?query=qwen&source=pypi", "invalid_argument", "source"),
        ("?query=qwen&limit=0", "invalid_argument", "limit"),
        ("?query=qwen&limit=51", "invalid_argument", "limit"),
        ("?query=qwen&limit=x", "invalid_argument", "limit"),
        ("?query=qwen&format=onnx", "invalid_argument", "format"),
    ],
)
def test_what_is_refused(site: Daemon, query: str, code: str, param: str) -> None:
    answer = site.get(f"/v1/registry/search{query}")
    assert (answer.status, answer.error["code"], answer.error["param"]) == (400, code, param)


@pytest.mark.parametrize(
    ("theirs", "ours", "code"),
    [(429, 429, "registry_unreachable"), (503, 502, "registry_unreachable"), (403, 502, "registry_error")],
)
def test_a_hub_that_refuses(site: Daemon, hub: FakeHub, theirs: int, ours: int, code: str) -> None:
    hub.set(listing_times=-1, listing_status=theirs)
    answer = site.get("/v1/registry/search?query=qwen")
    assert (answer.status, answer.error["code"]) == (ours, code)
    assert answer.error["upstream_status_code"] == theirs


def test_a_hub_that_cannot_be_reached_is_asked_once() -> None:
    calls = 0
    over = threading.Event()

    def hang_up(server: socket.socket) -> None:
        nonlocal calls
        server.settimeout(0.05)
        while not over.is_set():
            with contextlib.suppress(TimeoutError):
                server.accept()[0].close()
                calls += 1

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=hang_up, args=(server,))
        thread.start()
        env = {"HF_ENDPOINT": f"http://127.0.0.1:{server.getsockname()[1]}"}
        with pytest.raises(RegistryUnreachable):
            search("qwen", source="huggingface", limit=5, env=env)
        over.set()
        thread.join()
    assert calls == 1


@pytest.mark.parametrize("text", ["mirror.example", "http://mirror.example:port"])
def test_an_endpoint_that_is_no_address(text: str) -> None:
    with pytest.raises(RegistryUnreachable, match="HF_ENDPOINT"):
        search("qwen", source="huggingface", limit=5, env={"HF_ENDPOINT": text})

"""What a long day leaves behind in a daemon, and models whose files come and go."""

from __future__ import annotations

import http.client
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from tests.daemon import Daemon, wait_for
from tests.stream import Stream, text_of

Make = Callable[..., Daemon]


@pytest.mark.skipif(sys.platform == "win32", reason="counts descriptors")
def test_nothing_is_kept_of_clients_that_left(daemon: Daemon) -> None:
    assert daemon.process is not None
    process = psutil.Process(daemon.process.pid)
    assert daemon.chat("a").status == 200

    def visit(times: int) -> None:
        for number in range(times):
            stream = Stream(daemon, {"model": "a", "stream": number % 3 > 0, "fake": {"tokens": 900, "interval": 0.02}})
            if number % 3 == 2:
                stream.take(1)
            stream.hang_up()
        wait_for(lambda: not daemon.entry("a")["is_busy"])
        wait_for(lambda: daemon.seen("a")["in_flight"] == 0)

    visit(20)
    time.sleep(0.3)
    files, memory = process.num_fds(), process.memory_info().rss
    visit(150)
    wait_for(lambda: process.num_fds() <= files + 8)
    assert process.memory_info().rss - memory < 16 * 2**20


def test_a_hundred_streams_at_once(daemon: Daemon) -> None:
    with ThreadPoolExecutor(100) as pool:
        bodies = pool.map(lambda number: daemon.chat("a", str(number), stream=True).body, range(100))
        assert all(body.endswith(b"data: [DONE]\n\n") for body in bodies)


def test_an_unload_waits_for_the_answer(daemon: Daemon) -> None:
    stream = Stream(daemon, {"model": "a", "fake": {"tokens": 40, "interval": 0.03}})
    stream.take(2)
    with ThreadPoolExecutor(1) as pool:
        unload = pool.submit(daemon.post, "/v1/unload", {"model_name": "a"})
        events = stream.rest()
        assert unload.result().status == 200
    assert text_of(events).endswith("w39 ")
    assert events[-1] == "[DONE]"
    assert daemon.loaded() == []
    assert daemon.post("/v1/unload", {"model_name": "a"}).status == 404
    assert daemon.chat("a").status == 200


def test_a_reload_with_other_options_waits_for_the_answer(daemon: Daemon) -> None:
    assert daemon.post("/v1/load", {"model_name": "a", "ctx_size": 4096}).status == 200
    stream = Stream(daemon, {"model": "a", "fake": {"tokens": 40, "interval": 0.03}})
    stream.take(2)
    old = daemon.entry("a")["pid"]
    with ThreadPoolExecutor(1) as pool:
        load = pool.submit(daemon.post, "/v1/load", {"model_name": "a", "ctx_size": 2048})
        assert stream.rest()[-1] == "[DONE]"
        assert load.result().status == 200
    entry = daemon.entry("a")
    assert entry["pid"] != old
    assert entry["recipe_options"]["ctx_size"] == 2048


def ids(daemon: Daemon) -> list[str]:
    return [model["id"] for model in daemon.get("/v1/models").json()["data"]]


def test_files_that_are_no_models_do_no_harm(make_daemon: Make) -> None:
    one = make_daemon()
    one.add_model("good")
    (one.models / "empty.gguf").write_bytes(b"")
    (one.models / "page.gguf").write_bytes(b"<!doctype html>")
    (one.models / "noise.gguf").write_bytes(b"GGUF" + os.urandom(2000))
    (one.models / "folder.gguf").mkdir()
    (one.models / "dangling.gguf").symlink_to("/nonexistent/file")
    (one.models / "loop").symlink_to(".")
    with one:
        assert "good" in ids(one)
        assert not {"empty", "page", "folder", "dangling"} & set(ids(one))
        assert one.chat("good").status == 200
        assert one.chat("page").status == 404


def test_a_file_that_comes_is_offered_and_one_that_goes_is_not(make_daemon: Make) -> None:
    one = make_daemon()
    with one:
        assert ids(one) == []
        one.add_model("late")
        wait_for(lambda: ids(one) == ["late"])
        assert one.chat("late").status == 200
        assert one.post("/v1/unload", {}).status == 200
        (one.models / "late.gguf").unlink()
        gone = one.chat("late")
        assert gone.status == 404
        assert "late" in gone.error["message"]
        wait_for(lambda: ids(one) == [])


def test_a_cache_that_cannot_be_written_is_said_and_borne(make_daemon: Make) -> None:
    one = make_daemon()
    one.add_model("a")
    plain = one.folder / "plain"
    plain.write_text("no folder")
    one.env["LEMONADE_CACHE_DIR"] = str(plain)
    with one:
        assert one.chat("a").status == 200
        assert "log file cannot be written" in one.log


def test_refused_bodies_do_not_become_requests(daemon: Daemon) -> None:
    """What stands in a body that nobody read is not taken for the next request on the connection."""
    hidden = b"GET /internal/config HTTP/1.1\r\nHost: localhost\r\n\r\n" * 30
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=10)
    for headers, status in (({"Content-Encoding": "gzip"}, 415), ({"Content-Type": "text/plain"}, 415), ({}, 400)):
        connection.request("POST", "/v1/load", hidden, headers)
        answer = connection.getresponse()
        assert answer.status == status
        answer.read()
        connection.request("GET", "/live")
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b'{"status":"ok"}')
    connection.close()

"""How a daemon starts, moves and ends, and that it leaves nothing behind."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from tests.daemon import Daemon, alive, free_port, wait_for
from tests.stream import Stream
from tests.weights import smollm2

Make = Callable[..., Daemon]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals")

SLOW = {"tokens": 1000, "interval": 0.05}


def test_it_says_where_it_is(make_daemon: Make) -> None:
    with make_daemon() as one:
        said = (one.folder / "stdout.txt").read_text()
    assert said.splitlines()[0].endswith(f"is ready at http://localhost:{one.port}")


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_idle_daemon_and_its_engine(make_daemon: Make, sig: int) -> None:
    one = make_daemon(switches={"fork_child": True})
    one.add_model("a")
    with one:
        assert one.chat("a").status == 200
        left = [one.loaded()[0]["pid"], one.record()["child"]]
        assert all(alive(pid) for pid in left)
        assert one.stop(sig, seconds=3) == 0
    assert not any(alive(pid) for pid in left)


def test_shutdown_by_request_ends_the_daemon(make_daemon: Make) -> None:
    with make_daemon() as one:
        assert one.post("/internal/shutdown").json()["status"] == "shutting down"
        assert one.process is not None
        assert one.process.wait(5) == 0


def test_a_busy_daemon_ends_within_ten_seconds_and_tells_its_clients(make_daemon: Make) -> None:
    one = make_daemon(switches=SLOW)
    one.add_model("a")
    with one:
        stream = Stream(one, {"model": "a"})
        stream.take(3)
        began = time.monotonic()
        assert one.process is not None
        one.process.send_signal(signal.SIGTERM)
        events = stream.rest()
        assert one.process.wait(10) == 0
        assert time.monotonic() - began < 10
    assert "stopping" in json.loads(events[-1])["error"]["message"]
    assert [event for event in events if "error" in json.loads(event)] == events[-1:], "one error, at the end"
    assert stream.whole
    assert not any(alive(pid) for pid in one.starts)


def test_a_short_answer_is_finished_before_the_end(make_daemon: Make) -> None:
    one = make_daemon(switches={"tokens": 20, "interval": 0.05})
    one.add_model("a")
    with one:
        stream = Stream(one, {"model": "a"})
        stream.take(3)
        assert one.process is not None
        one.process.send_signal(signal.SIGTERM)
        assert stream.rest()[-1] == "[DONE]"
        assert one.process.wait(10) == 0


def test_a_hub_that_says_nothing_does_not_hold_the_daemon(make_daemon: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hub = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with make_daemon(env={"HF_ENDPOINT": hub, "NO_PROXY": "127.0.0.1"}) as one:
            asker = threading.Thread(target=lambda: one.get("/v1/pull/variants?checkpoint=o/n"))
            asker.start()
            asked, _ = silent.accept()
            with asked:
                assert one.stop(seconds=10) == 0
            asker.join()


def test_a_busy_port_is_one_line_and_a_failure(make_daemon: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        one = make_daemon(port=taken.getsockname()[1])
        one.start(wait=False)
        assert one.process is not None
        assert one.process.wait(20) != 0
    (line,) = one.log.splitlines()
    assert "already in use" in line
    assert str(one.port) in line


def test_it_starts_again_at_once_while_old_connections_linger(make_daemon: Make) -> None:
    one = make_daemon(switches=SLOW)
    one.add_model("a")
    with one:
        idle = http.client.HTTPConnection("127.0.0.1", one.port)
        idle.request("GET", "/live")
        idle.getresponse().read()
        stream = Stream(one, {"model": "a"})
        stream.take(1)
        one.close()
        one.start()
        assert one.get("/live").status == 200
        assert one.chat("a", tokens=1, fake={"tokens": 1, "interval": 0}).status == 200
        idle.close()
        stream.close()


@pytest.mark.parametrize("switches", [{"fork_child": True}, {"ignore_sigterm": True}], ids=str)
def test_nothing_outlives_a_killed_daemon(make_daemon: Make, switches: dict[str, object]) -> None:
    one = make_daemon(switches={**switches, **SLOW})
    one.add_model("a")
    with one:
        stream = Stream(one, {"model": "a"})
        stream.take(1)
        left = [pid for pid in (*one.starts, one.record()["child"]) if pid]
        assert left
        assert all(alive(pid) for pid in left)
        one.close()
        wait_for(lambda: not any(alive(pid) for pid in left), 5)
        stream.close()


@pytest.mark.real
@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGKILL])
def test_the_bundled_engine_ends_with_the_daemon(make_daemon: Make, sig: int) -> None:
    one = make_daemon(fake_engine=False)
    weights = smollm2()
    (one.models / "small.gguf").symlink_to(weights)
    with one:
        stream = Stream(one, {"model": "small", "max_tokens": 4000, "ignore_eos": True}, timeout=60)
        stream.take(2)
        pid = one.entry("small")["pid"]
        assert alive(pid)
        assert one.stop(sig, seconds=10) == (0 if sig == signal.SIGTERM else -sig)
        stream.close()
        wait_for(lambda: not alive(pid), 5)


def test_an_engine_that_ignores_the_request_to_end_is_killed(make_daemon: Make) -> None:
    one = make_daemon(switches={"ignore_sigterm": True})
    one.add_model("a")
    with one:
        assert one.chat("a").status == 200
        (pid,) = one.starts
        assert one.stop(seconds=10) == 0
    assert not alive(pid)


def test_a_signal_during_a_load_ends_the_start(make_daemon: Make) -> None:
    one = make_daemon(switches={"never_ready": True})
    one.add_model("a")
    with one:
        stream = Stream(one, {"model": "a", "stream": False})
        (pid,) = wait_for(lambda: one.starts)
        assert one.stop(seconds=10) == 0
        assert stream.answer().status == 503
    assert not alive(pid)


def test_both_loopbacks_answer(make_daemon: Make) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    with make_daemon() as one:
        for host in ("127.0.0.1", "::1"):
            connection = http.client.HTTPConnection(host, one.port, timeout=10)
            connection.request("GET", "/live")
            assert connection.getresponse().status == 200
            connection.close()


def test_the_environment_says_where_to_listen(make_daemon: Make) -> None:
    one = make_daemon()
    env = {**one.environment(), "LEMONADE_HOST": "127.0.0.1", "LEMONADE_PORT": str(one.port)}
    with (one.folder / "stderr.txt").open("wb") as errors, (one.folder / "stdout.txt").open("wb") as output:
        one.process = subprocess.Popen(
            [sys.executable, "-m", "lemonade.cli.main", "serve"], env=env, stdout=output, stderr=errors
        )
    one.wait_live()
    assert f"http://127.0.0.1:{one.port}" in (one.folder / "stdout.txt").read_text()
    with pytest.raises(OSError):
        socket.create_connection(("::1", one.port), timeout=2).close()


@pytest.mark.parametrize("content", [b"{ not json", b"[]", b"\xff\xfe\x00", b""], ids=repr)
def test_a_broken_configuration_is_set_aside(make_daemon: Make, content: bytes) -> None:
    one = make_daemon()
    file = one.folder / "config" / "config.json"
    file.write_bytes(content)
    with one:
        assert one.get("/live").status == 200
        kept = [path for path in file.parent.iterdir() if path != file and path.is_file()]
        assert content in [path.read_bytes() for path in kept] or not content.strip()
        assert one.post("/internal/set", {"ctx_size": 4096}).status == 200
        assert json.loads(file.read_text())["ctx_size"] == 4096


def test_a_stream_survives_the_move_to_another_port(make_daemon: Make) -> None:
    one = make_daemon(switches={"tokens": 30, "interval": 0.05})
    one.add_model("a")
    with one:
        old, new = one.port, free_port()
        stream = Stream(one, {"model": "a"})
        stream.take(2)
        assert one.post("/internal/set", {"port": new}).status == 200
        one.port = new
        one.wait_live(5)
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", old), timeout=2).close()
        assert stream.rest()[-1] == "[DONE]"
        assert stream.whole


def test_an_address_that_cannot_be_had_is_refused(make_daemon: Make) -> None:
    with make_daemon() as one, socket.create_server(("127.0.0.1", 0)) as taken:
        for wrong in ({"port": taken.getsockname()[1]}, {"host": "192.0.2.1"}, {"host": "no.such.host.invalid"}):
            answer = one.post("/internal/set", wrong)
            assert answer.status == 400
            assert answer.error["code"] == "invalid_config"
            assert [answer.error["param"]] == list(wrong)
            assert str(*wrong.values()) in answer.error["message"]
        config = one.get("/internal/config").json()
        assert (config["host"], config["port"]) == ("localhost", one.port)
        assert "port" not in json.loads((one.folder / "config" / "config.json").read_text())
        assert one.get("/live").status == 200


def test_many_starts_and_ends_leave_no_child(make_daemon: Make) -> None:
    one = make_daemon()
    one.add_model("a")
    for _ in range(3):
        with one:
            assert one.chat("a").status == 200
            assert one.post("/v1/unload", {}).status == 200
            assert one.chat("a").status == 200
            assert one.process is not None
            group = children(one.process.pid)
            assert one.stop(seconds=5) == 0
        wait_for(lambda group=group: not any(alive(pid) for pid in group), 5)
    assert not any(alive(pid) for pid in one.starts)


def children(pid: int) -> list[int]:
    import psutil

    return [child.pid for child in psutil.Process(pid).children(recursive=True)]

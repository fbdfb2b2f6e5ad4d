"""Nothing leaves the machine unless it was asked for, and without a network everything that is here works."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.daemon import Daemon, wait_for

Make = Callable[..., Daemon]

BUILTIN = "Qwen3-0.6B-GGUF"

#: Brings the loopback up in a network of its own, says so, and keeps that network until its input ends.
HOLDER = """
import fcntl, socket, struct, sys
SIOCSIFFLAGS, UP = 0x8914, 1
with socket.socket() as one:
    fcntl.ioctl(one, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", UP))
print("ready", flush=True)
sys.stdin.read()
"""


class Counter:
    """A listener that hangs up on everybody and counts them."""

    def __init__(self) -> None:
        self.calls = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def _run(self) -> None:
        while True:
            try:
                self._socket.accept()[0].close()
            except OSError:
                return
            self.calls += 1

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


@pytest.fixture
def outside() -> Iterator[Counter]:
    counter = Counter()
    yield counter
    counter.close()


@pytest.fixture
def watched(make_daemon: Make, outside: Counter) -> Iterator[Daemon]:
    """A daemon for which the counter is the hub and, for every other call, the proxy."""
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy"), outside.url)
    local = {"no_proxy": "localhost,127.0.0.1,::1", "NO_PROXY": "localhost,127.0.0.1,::1"}
    one = make_daemon(env={"HF_ENDPOINT": outside.url, **proxies, **local})
    one.add_model("a")
    with one:
        yield one


def use(daemon: Daemon) -> None:
    """All that needs nothing from elsewhere."""
    assert daemon.get("/v1/models").status == 200
    assert daemon.get("/v1/models?show_all=true").status == 200
    assert daemon.get(f"/v1/models/{BUILTIN}").status == 200
    assert daemon.get("/v1/health").status == 200
    assert daemon.get("/docs").status == 200
    assert daemon.post("/v1/load", {"model_name": "a"}).status == 200
    assert daemon.chat("a").status == 200
    assert daemon.post("/v1/unload", {}).status == 200
    assert daemon.chat("none").status == 404


def test_nothing_is_asked_of_anybody(watched: Daemon, outside: Counter) -> None:
    use(watched)
    assert outside.calls == 0
    assert watched.stop() == 0
    assert outside.calls == 0


def test_a_download_that_was_asked_for_asks_the_hub(watched: Daemon, outside: Counter) -> None:
    """Without this the test above would prove nothing."""
    answer = watched.post("/v1/pull", {"model_name": BUILTIN, "stream": False})
    assert answer.status == 502
    assert answer.error["code"] == "registry_unreachable"
    assert outside.calls >= 1


def test_offline_asks_nobody_even_for_a_download(watched: Daemon, outside: Counter) -> None:
    assert watched.post("/internal/set", {"offline": True}).status == 200
    use(watched)
    for path, body in (
        ("/v1/pull", {"model_name": BUILTIN, "stream": False}),
        ("/v1/load", {"model_name": BUILTIN}),
        ("/v1/chat/completions", {"model": BUILTIN, "messages": [{"role": "user", "content": "x"}]}),
    ):
        answer = watched.post(path, body)
        assert 400 <= answer.status <= 500
        assert "offline" in answer.error["message"]
    assert outside.calls == 0


@pytest.fixture
def cut() -> Iterator[list[str]]:
    """The beginning of a command line that runs in a network with nothing but its loopback."""
    if not (shutil.which("unshare") and shutil.which("nsenter")):
        pytest.skip("needs unshare and nsenter")
    holder = subprocess.Popen(
        ["unshare", "--net", "--", sys.executable, "-c", HOLDER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        if holder.stdout.readline() != b"ready\n":
            pytest.skip("unshare --net is refused here")
        yield ["nsenter", f"--net=/proc/{holder.pid}/ns/net", "--"]
        holder.stdin.close()


def test_without_a_network_what_is_here_works_and_the_rest_says_why(make_daemon: Make, cut: list[str]) -> None:
    one = make_daemon()
    one.add_model("a")
    program = [*cut, sys.executable, "-m", "lemonade.cli.main"]
    env = {**one.environment(), "LEMONADE_HOST": "localhost", "LEMONADE_PORT": str(one.port)}
    with (one.folder / "stderr.txt").open("wb") as errors, (one.folder / "stdout.txt").open("wb") as output:
        one.process = subprocess.Popen([*program, "serve"], env=env, stdout=output, stderr=errors)
    wait_for(lambda: "is ready" in (one.folder / "stdout.txt").read_text(), 20)

    def lemonade(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*program, *arguments], env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60
        )

    listed = lemonade("list")
    assert listed.returncode == 0, listed.stderr
    assert "a" in listed.stdout.split()
    said = lemonade("run", "a", "What is the capital of France?")
    assert said.returncode == 0, said.stderr
    assert "Paris" in said.stdout
    pulled = lemonade("pull", BUILTIN)
    assert pulled.returncode == 1
    assert "Traceback" not in pulled.stderr
    assert "huggingface.co" in pulled.stderr, "it says what it could not reach"
    assert one.stop(seconds=10) == 0

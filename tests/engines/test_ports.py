from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from lemonade.engines.ports import is_free, release_port, take_port


@pytest.fixture
def start() -> Iterator[int]:
    """Where this test looks first, away from engines of other tests."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        yield probe.getsockname()[1]


def test_two_never_get_the_same(start: int) -> None:
    first, second = take_port(start + 1), take_port(start + 1)
    assert first != second
    release_port(first)
    assert take_port(start + 1) == first
    release_port(first)
    release_port(second)
    release_port(second)


def test_a_port_on_which_somebody_listens_is_passed_over(start: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not is_free(port)
        found = take_port(port)
        assert found > port
        release_port(found)


def test_a_listener_on_all_addresses_counts(start: int) -> None:
    with socket.create_server(("", 0)) as server:
        assert not is_free(server.getsockname()[1])


def test_sockets_that_linger_do_not_count() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            accepted, _ = server.accept()
            accepted.close()  # this side closes first and keeps the pair for a minute
            client.recv(1)
    assert is_free(port)


def test_another_process_keeps_its_reservation_until_it_ends(start: int) -> None:
    code = (
        "import sys; from lemonade.engines.ports import take_port; "
        "print(take_port(int(sys.argv[1])), flush=True); input()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(start + 1)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    theirs = int(other.stdout.readline())
    ours = take_port(theirs)
    assert ours != theirs
    release_port(ours)
    other.communicate("\n", timeout=10)
    again = take_port(theirs)
    assert again == theirs
    release_port(again)

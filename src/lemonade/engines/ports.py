"""Which TCP port on loopback the next engine listens on."""

from __future__ import annotations

import errno
import socket
import sys

from lemonade.errors import ModelLoadError

#: Where the original looks first; firewalls and documentation of its users know it.
FIRST_PORT = 8001

# A reservation is a UDP socket bound to the port of the same number. The system gives it to one process only, whoever
# asks, and takes it back when the process ends: two daemons that start at once never choose the same port.
_reserved: dict[int, socket.socket] = {}


class PortLost(ModelLoadError):
    """Another program took the port between the choice and the engine's start. Another port is worth a try."""


def take_port(first: int = FIRST_PORT) -> int:
    """The first free port from `first` on, reserved against every other daemon until `release_port`.

    Raises:
        ModelLoadError: there is none.
    """
    for port in range(first, 65536):
        if port in _reserved or not is_free(port):
            continue
        mark = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            mark.bind(("127.0.0.1", port))
        except OSError:
            mark.close()
            continue
        _reserved[port] = mark
        return port
    raise ModelLoadError(f"no free TCP port from {first} to 65535 on 127.0.0.1 for an engine")


def release_port(port: int) -> None:
    """Gives a reservation back; harmless when there is none."""
    if mark := _reserved.pop(port, None):
        mark.close()


def is_free(port: int) -> bool:
    """Whether an engine could listen on the port of 127.0.0.1 now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        if sys.platform != "win32":
            # Sockets of an earlier engine that linger in TIME_WAIT do not block a port; on Windows the option
            # would let two programs share it.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            probe.listen(1)
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES) or sys.platform == "win32":
                return False
            raise
    return True

"""Ends the engines when the daemon ends, however it ends.

This file runs as a program of its own (`python -I -S guard.py`), started with the first engine. Its standard input is a
pipe of which only the daemon, and for a moment a starting engine, hold the other end. Lines on it are `+GROUP` and
`-GROUP`: process groups to watch and to forget. The end of the input means that the daemon is gone, by whatever signal;
the groups that are left are killed, grandchildren included.

A group is announced by its own first process, before that process becomes the engine (see `process.py`), and the guard
sees no end of input while that process holds the pipe: there is no moment at which a kill of the daemon could leak one.
"""

import os
import signal
import sys


def main() -> None:
    # A service manager that stops the whole unit must not take the guard away before its work is done.
    for name in ("SIGTERM", "SIGINT", "SIGHUP"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin.buffer:
        try:
            group = int(line[1:])
        except ValueError:
            continue
        if line[:1] == b"+":
            groups.add(group)
        else:
            groups.discard(group)
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except OSError:
            pass  # it ended by itself


if __name__ == "__main__":
    main()

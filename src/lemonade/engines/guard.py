"""Ends the engines when the daemon ends, however it ends.

    python -I -S guard.py LIFELINE

This file runs as a program of its own, started with the first engine. LIFELINE is the number of a pipe of which only
the daemon holds the other end: its end means that the daemon is gone, by whatever signal. Standard input brings the
lines `+GROUP` and `-GROUP`: process groups to watch and to forget. When the daemon is gone, the groups that are left
are killed, grandchildren included.

A group is announced by its own first process, before that process becomes the engine (see `process.py`), and that
process holds standard input open. So the guard goes on reading until the end of the input, and kills what is still
announced: there is no moment at which a kill of the daemon could leak an engine. Some event loops let the engine itself
inherit that pipe; it then ends with the engine, which is why the input's end alone is no sign of the daemon's.
"""

import os
import select
import signal
import sys

#: Seconds without news after which the guard ends although somebody, who left his group, holds the input open.
PATIENCE = 10.0


def main() -> None:
    # A service manager that stops the whole unit must not take the guard away before its work is done.
    for name in ("SIGTERM", "SIGINT", "SIGHUP"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    announced, lifeline = sys.stdin.fileno(), int(sys.argv[1])
    groups: set[int] = set()
    partial = b""
    alive = True
    while True:
        ready = select.select([announced, lifeline] if alive else [announced], [], [], None if alive else PATIENCE)[0]
        if lifeline in ready:
            alive = False
        if announced in ready:
            data = os.read(announced, 65536)
            if not data:
                break
            *lines, partial = (partial + data).split(b"\n")
            for line in lines:
                note(line, groups)
        elif not ready:
            break
        if not alive:
            kill(groups)
    kill(groups)


def note(line: bytes, groups: set[int]) -> None:
    try:
        group = int(line[1:])
    except ValueError:
        return
    if line[:1] == b"+":
        groups.add(group)
    else:
        groups.discard(group)


def kill(groups: set[int]) -> None:
    while groups:
        try:
            os.killpg(groups.pop(), signal.SIGKILL)
        except OSError:
            pass  # it ended by itself


if __name__ == "__main__":
    main()

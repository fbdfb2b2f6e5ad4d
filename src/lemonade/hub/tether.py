"""Runs a module's program for as long as whoever started it is there.

    python -P tether.py MODULE ARGUMENT…

The starter holds the other end of standard input. When that closes, because the starter wants it so or because it died
in whatever way, the program ends at once. Nothing but the standard library is imported here.
"""

from __future__ import annotations

import os
import runpy
import sys
import threading


def main() -> None:
    threading.Thread(target=_hold, name="tether", daemon=True).start()
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def _hold() -> None:
    while os.read(0, 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()

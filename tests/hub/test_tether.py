from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from lemonade.hub import tether


def start(folder: Path, program: str, *arguments: str) -> subprocess.Popen[str]:
    (folder / "tethered.py").write_text(program)
    return subprocess.Popen(
        [sys.executable, "-P", tether.__file__, "tethered", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(folder)},
        text=True,
    )


def test_the_program_runs_with_its_arguments(tmp_path: Path) -> None:
    child = start(tmp_path, "import sys; print(__name__, *sys.argv[1:]); sys.exit(3)", "--flag", "word")
    assert child.stdout is not None
    assert child.stdout.read().split() == ["__main__", "--flag", "word"]
    assert child.wait(20) == 3
    child.communicate()


def test_letting_go_ends_it(tmp_path: Path) -> None:
    child = start(tmp_path, "import time; print('here', flush=True); time.sleep(300)")
    assert child.stdout is not None and child.stdin is not None
    assert child.stdout.readline() == "here\n"
    child.stdin.close()
    assert child.wait(20) == 1
    child.stdout.close()

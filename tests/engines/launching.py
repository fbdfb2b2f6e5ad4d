"""How tests start the fake engine, alone or as the `llama-server` on PATH."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from lemonade.engines.engine import Launch
from lemonade.engines.ports import take_port

PROGRAM = Path(__file__).with_name("fake_engine.py")


def fake_launch(name: str = "fake-engine", *, port: int | None = None, **switches: Any) -> Launch:
    """The fake engine as a launch, on a free port unless one is given."""
    port = port or take_port()
    argv = (sys.executable, str(PROGRAM), "-m", "fake.gguf", "--port", str(port), "--alias", "Fake")
    return Launch(name=name, argv=argv, port=port, env={"FAKE_ENGINE": json.dumps(switches)})


def llama_server_shim(folder: Path, *arguments: str) -> Path:
    """Writes a `llama-server` that is the fake engine; put `folder` in front of PATH. POSIX only."""
    folder.mkdir(parents=True, exist_ok=True)
    shim = folder / "llama-server"
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{PROGRAM}" {" ".join(arguments)} "$@"\n')
    shim.chmod(0o755)
    return shim

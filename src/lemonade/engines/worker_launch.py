"""The start of a `worker`, apart from its program, which the daemon need not import."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Mapping
from typing import Any

from lemonade.engines.engine import Launch

#: Carries the secret that keeps other programs of this machine away from the operations.
KEY_HEADER = "X-Worker-Key"
KEY_VARIABLE = "LEMONADE_WORKER_KEY"
#: Engines compute with threads of their own that wait by spinning, unless they are told not to: two engines would
#: fight for the cores.
PATIENT = {"OMP_WAIT_POLICY": "passive"}


def worker_launch(
    *,
    name: str,
    module: str,
    config: Mapping[str, Any],
    port: int,
    env: Mapping[str, str] = {},
    backend: str = "cpu",
    device: str = "cpu",
    slots: int = 1,
) -> Launch:
    """The process that runs `module`, for an engine's `plan`."""
    key = secrets.token_hex(16)
    return Launch(
        name=name,
        argv=(sys.executable, "-m", "lemonade.engines.worker", module, "--port", str(port), json.dumps(config)),
        port=port,
        env={**PATIENT, **env, KEY_VARIABLE: key},
        headers={KEY_HEADER: key},
        backend=backend,
        device=device,
        slots=slots,
    )

"""OpenAI's library for JavaScript against a daemon: one run of `node/talk.mjs`, looked at from several sides."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from tests.daemon import Daemon

SOURCE = Path(__file__).parent / "node"
FILES = ("package.json", "package-lock.json", ".npmrc")
#: The oldest Node that the library runs on.
OLDEST = 20


def installed() -> Path:
    """A folder with the library in it, made once for each state of the lock file."""
    state = hashlib.sha256(b"".join((SOURCE / name).read_bytes() for name in FILES)).hexdigest()[:16]
    base = Path(os.environ.get("LEMONADE_TEST_NODE") or Path("~/.cache/lemonade-test-node").expanduser())
    target = base / state
    base.mkdir(parents=True, exist_ok=True)
    with FileLock(base / "lock"):
        if not target.exists():
            with tempfile.TemporaryDirectory(dir=base, prefix="installing-") as scratch:
                made = Path(scratch) / "made"
                made.mkdir()
                for name in FILES:
                    shutil.copy(SOURCE / name, made)
                npm = shutil.which("npm")
                assert npm is not None
                subprocess.run([npm, "ci", "--prefer-offline", "--ignore-scripts"], cwd=made, check=True, timeout=150)
                made.rename(target)
    return target


@pytest.fixture(scope="module")
def talk(daemon: Daemon, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the library saw."""
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    if int(version.removeprefix("v").split(".")[0]) < OLDEST:
        pytest.skip(f"the library needs Node {OLDEST} or newer, this is {version.strip()}")
    script = tmp_path_factory.mktemp("node") / "talk.mjs"
    shutil.copy(SOURCE / "talk.mjs", script)
    (script.parent / "node_modules").symlink_to(installed() / "node_modules", target_is_directory=True)
    ran = subprocess.run([node, str(script), f"{daemon.url}/v1"], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    seen: dict[str, Any] = json.loads(ran.stdout)
    return seen


def test_chat(talk: dict[str, Any]) -> None:
    answer = talk["chat"]
    assert answer["model"] == "a"
    assert answer["choices"][0]["message"]["content"] == "The capital of France is Paris."
    assert answer["usage"]["completion_tokens"] == 6


def test_stream_with_usage(talk: dict[str, Any]) -> None:
    *chunks, last = talk["stream"]
    text = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    assert text == "The capital of France is Paris."
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 6


def test_tools(talk: dict[str, Any]) -> None:
    (choice,) = talk["tools"]["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "weather"
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"place":"Paris"}'


def test_an_abort_reaches_the_engine(talk: dict[str, Any]) -> None:
    assert talk["abort"] == {"seen": 3, "idle": True}


def test_models(talk: dict[str, Any]) -> None:
    assert {"a", "b", "c"} <= set(talk["models"])


@pytest.mark.parametrize(
    ("what", "kind", "code"),
    [
        ("missing", "NotFoundError", "model_not_found"),
        ("wrong", "BadRequestError", "invalid_argument"),
        ("long", "BadRequestError", "context_length_exceeded"),
        ("broken", "APIError", "backend_unavailable"),
    ],
)
def test_errors_have_the_types_of_the_library(talk: dict[str, Any], what: str, kind: str, code: str) -> None:
    assert talk["errors"][what] is not None
    assert (talk["errors"][what]["type"], talk["errors"][what]["code"]) == (kind, code)

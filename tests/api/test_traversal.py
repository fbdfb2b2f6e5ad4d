"""Names that would lead out of the cache: refused, and nothing is written anywhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.daemon import Daemon

CHECKPOINTS = [
    "../../etc/x",
    "a/../../b:Q4_0",
    "/etc/passwd:Q4_0",
    "C:\\x:Q4_0",
    "o/n\0:Q4_0",
    "%2e%2e/%2e%2e:Q4_0",
    "o/" + "n" * 5000 + ":Q4_0",
    "o/n:../../../evil.gguf",
    "o/n:/etc/passwd.gguf",
    "http://10.0.0.1/x",
    "http://169.254.169.254/latest/meta-data",
    "file:///etc/passwd",
]
NAMES = [
    "user.../../evil",
    "user.a/../../b",
    "user./etc/x",
    "user." + "n" * 5000,
    "user.a\0b",
    "user..",
    "user.a\\..\\b",
]


def snapshot(folder: Path) -> set[str]:
    found = set()
    for parent, folders, files in os.walk(folder):
        found |= {str(Path(parent, name)) for name in (*folders, *files)}
    # The daemon's log grows, and its locks stay.
    return {each for each in found if not each.endswith(".lock") and "/logs" not in each}


@pytest.mark.parametrize("path", ["/v1/pull", "/v1/models/register"])
def test_checkpoints(site: Daemon, path: str) -> None:
    before = snapshot(site.folder.parent)
    for text in CHECKPOINTS:
        for checkpoints in ({"checkpoint": text}, {"checkpoints": {"main": "o/n:Q4_0", "mmproj": text}}):
            body: dict[str, Any] = {"model_name": "user.Evil", "recipe": "llamacpp", **checkpoints}
            answer = site.post(path, body)
            assert answer.status == 400, (text, answer.body[:300])
            assert answer.error["param"] in ("checkpoint", "checkpoints"), text
    assert snapshot(site.folder.parent) == before


def test_names(site: Daemon) -> None:
    before = snapshot(site.folder.parent)
    for name in NAMES:
        for path in ("/v1/pull", "/v1/models/register"):
            for more in ({"checkpoint": "o/n:Q4_0"}, {"local_import": True}):
                if path == "/v1/models/register" and "local_import" in more:
                    continue
                answer = site.post(path, {"model_name": name, "recipe": "llamacpp", **more})
                assert (answer.status, answer.error["param"]) == (400, "model_name"), (name, answer.body[:300])
    assert snapshot(site.folder.parent) == before


def test_ids(site: Daemon) -> None:
    for name in ("..", "../..", "../../etc/passwd", "%2e%2e", "a/../../b", "..%2f..", "\0", "x" * 5000):
        for method, tail in (("GET", ""), ("GET", "/files"), ("GET", "/options"), ("DELETE", "/options")):
            answer = site.ask(method, f"/v1/models/{quote(name, safe='/%')}{tail}")
            assert answer.status in (400, 404, 405, 414, 431), (name, answer.status)
        assert site.post("/v1/delete", {"model_name": name}).status == 422
    assert site.get("/v1/health").status == 200

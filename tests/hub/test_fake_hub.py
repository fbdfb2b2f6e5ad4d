"""The fake hub as a program, and against the library that it imitates a hub for."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

from huggingface_hub import HfApi

from tests.hub import fake_hub
from tests.hub.fake_hub import FakeHub


def test_the_library_lists_it(hub: FakeHub) -> None:
    hub.write("o/n", "m.gguf", b"GGUF" + bytes(5000))
    hub.write("o/n", "config.json", b"{}")
    api = HfApi(endpoint=hub.url, token=False)
    info = api.model_info("o/n", files_metadata=True)
    assert info.siblings is not None
    assert {sibling.rfilename: sibling.size for sibling in info.siblings} == {"m.gguf": 5004, "config.json": 2}
    assert {entry.path for entry in api.list_repo_tree("o/n")} == {"m.gguf", "config.json"}


def test_as_a_program(tmp_path: Path) -> None:
    (tmp_path / "o" / "n").mkdir(parents=True)
    (tmp_path / "o" / "n" / "config.json").write_text("{}")
    command = [sys.executable, fake_hub.__file__, "--root", str(tmp_path), "--switches", '{"revision": "abc"}']
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        url = child.stdout.readline().split()[0]
        with urllib.request.urlopen(f"{url}/api/models/o/n") as response:
            assert json.load(response)["sha"] == "abc"
        with urllib.request.urlopen(f"{url}/_record") as response:
            assert [each["path"] for each in json.load(response)] == ["/api/models/o/n"]
    finally:
        child.kill()
        child.communicate()

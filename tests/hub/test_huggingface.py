from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lemonade.errors import (
    InvalidArgument,
    Offline,
    RegistryReplied,
    RegistryUnreachable,
    RepositoryGated,
    RepositoryNotFound,
)
from lemonade.hub.huggingface import HuggingFace
from tests.hub.conftest import QUICK
from tests.hub.fake_hub import FakeHub


def registry(hub: FakeHub, **env: str) -> HuggingFace:
    return HuggingFace(patience=QUICK, env={"HF_ENDPOINT": hub.url, **env})


def test_listing(hub: FakeHub) -> None:
    large = hub.write("o/n", "m.gguf", b"GGUF" + bytes(2000))
    small = hub.write("o/n", "sub/config.json", b"{}")
    listing = registry(hub).listing("o/n")
    assert listing.revision == hub.revision("o/n")
    by_path = {file.path: file for file in listing.files}
    assert (by_path["m.gguf"].size, by_path["m.gguf"].sha256) == (2004, hub.digests(large)[0])
    config = by_path["sub/config.json"]
    assert (config.size, config.sha256, config.etag) == (2, None, hub.digests(small)[1])


def test_one_call_and_nothing_else(hub: FakeHub) -> None:
    hub.write("o/n", "m.gguf", b"GGUF")
    registry(hub).listing("o/n")
    assert [each.path for each in hub.seen] == ["/api/models/o/n?blobs=true"]


def test_missing_repository(hub: FakeHub) -> None:
    with pytest.raises(RepositoryNotFound, match="o/none"):
        registry(hub).listing("o/none")


def test_private_repository(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.write("o/n", "m.gguf", b"GGUF")
    hub.set(token="hf_other")
    with pytest.raises(RepositoryNotFound, match="HF_TOKEN"):
        registry(hub).listing("o/n")
    monkeypatch.setenv("HF_TOKEN", "hf_other")
    assert registry(hub).listing("o/n").files


@pytest.mark.parametrize("name", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_makes_no_call(hub: FakeHub, name: str) -> None:
    with pytest.raises(Offline, match="HF_HUB_OFFLINE"):
        registry(hub, **{name: "1"}).listing("o/n")
    assert hub.calls() == 0


def test_unreachable() -> None:
    with pytest.raises(RegistryUnreachable, match=r"127\.0\.0\.1:9 cannot be reached"):
        HuggingFace(env={"HF_ENDPOINT": "http://127.0.0.1:9"}).listing("o/n")


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_hub_that_stumbles_is_asked_again(hub: FakeHub, status: int) -> None:
    hub.write("o/n", "m.gguf", b"GGUF")
    hub.set(listing_status=status, listing_times=2)
    assert registry(hub).listing("o/n").files
    hub.set(listing_status=status, listing_times=-1)
    with pytest.raises(RegistryUnreachable, match="try again"):
        registry(hub).listing("o/n")


@pytest.mark.parametrize(
    ("status", "kind"), [(403, RepositoryGated), (404, RepositoryNotFound), (418, RegistryReplied)]
)
def test_a_refusal_is_final(hub: FakeHub, status: int, kind: type[Exception]) -> None:
    hub.write("o/n", "m.gguf", b"GGUF")
    hub.set(listing_status=status, listing_times=-1)
    with pytest.raises(kind):
        registry(hub).listing("o/n")
    assert hub.calls() == 1


@pytest.mark.parametrize("text", ["mirror.example", "https://", "http://mirror.example:port", "http://[::1"])
def test_an_endpoint_that_is_no_address(text: str) -> None:
    with pytest.raises(RegistryUnreachable, match="HF_ENDPOINT"):
        HuggingFace(env={"HF_ENDPOINT": text}).listing("o/n")


@pytest.mark.parametrize(
    "repository",
    [
        "../../etc/x",
        "a/../../b",
        "/etc/passwd",
        "C:\\x",
        "a\0b",
        "%2e%2e/x",
        "x" * 5000,
        "a/b/c",
        "",
        ".",
        "..",
        "a--b/c",
    ],
)
def test_names_that_lead_out_are_refused_before_any_call(hub: FakeHub, repository: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        registry(hub).listing(repository)
    assert caught.value.param == "checkpoint"
    assert len(caught.value.message) < 400
    assert hub.calls() == 0


def sibling(path: str, **more: Any) -> Mapping[str, Any]:
    return {"rfilename": path, "size": 4, "blobId": "a" * 40, **more}


@pytest.mark.parametrize(
    "answer",
    [
        {},
        [],
        {"sha": "a" * 40},
        {"sha": "../../x", "siblings": []},
        {"sha": "a" * 40, "siblings": [{}]},
        {"sha": "a" * 40, "siblings": [sibling("../evil.gguf")]},
        {"sha": "a" * 40, "siblings": [sibling("/etc/evil.gguf")]},
        {"sha": "a" * 40, "siblings": [sibling("a\\b.gguf")]},
        {"sha": "a" * 40, "siblings": [sibling("a.gguf", lfs={"sha256": "../../evil", "size": 4})]},
    ],
)
def test_listings_that_no_hub_sends(hub: FakeHub, answer: Any) -> None:
    hub.set(listing=json.dumps(answer))
    with pytest.raises(RegistryReplied):
        registry(hub).listing("o/n")


def test_a_login_page_instead_of_a_listing(hub: FakeHub) -> None:
    hub.set(listing="<html>Please log in</html>")
    with pytest.raises(RegistryReplied, match="login page"):
        registry(hub).listing("o/n")


def test_gated(hub: FakeHub) -> None:
    from lemonade.hub.layout import Folder

    hub.write("o/n", "m.gguf", b"GGUF")
    hub.set(gated=True)
    listing = registry(hub).listing("o/n")

    class Nobody:
        def check(self) -> None: ...
        def on_stop(self, hang_up: Any) -> None: ...
        def begin(self, *args: Any) -> None: ...
        def advance(self, here: int) -> None: ...

    folder = Folder(hub.root / "cache", "huggingface", "o/n")
    folder.prepare(listing)
    with pytest.raises(RepositoryGated, match="terms"):
        registry(hub).fetch(listing, listing.files, folder, Nobody())


def test_the_import_costs_nothing_before_it_is_needed() -> None:
    import subprocess
    import sys

    program = (
        "import sys, lemonade.hub.downloads, lemonade.hub.store; "
        "print([m for m in ('huggingface_hub', 'httpx2', 'filelock') if m in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=os.environ, check=True)
    assert said.stdout.strip() == "[]"


def test_a_fresh_process_calls_nobody_else(hub: FakeHub, tmp_path: Path) -> None:
    import subprocess
    import sys

    hub.write("o/n", "m.gguf", b"GGUF")
    program = "from lemonade.hub.huggingface import HuggingFace; HuggingFace().listing('o/n')"
    env = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home")}
    subprocess.run([sys.executable, "-c", program], env=env, check=True)
    assert [each.path for each in hub.seen] == ["/api/models/o/n?blobs=true"]

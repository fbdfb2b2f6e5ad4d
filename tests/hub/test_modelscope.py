from __future__ import annotations

import os
from pathlib import Path

import pytest

from lemonade.errors import InvalidArgument, RegistryReplied, RegistryUnreachable, RepositoryNotFound
from lemonade.hub.downloads import Downloads
from lemonade.hub.modelscope import ModelScope
from lemonade.hub.store import Store
from tests.hub.conftest import QUICK, model
from tests.hub.fake_hub import FakeHub

BYTES = b"GGUF" + bytes(range(256)) * 40


def scope(url: str, **env: str) -> ModelScope:
    return ModelScope(patience=QUICK, env={**os.environ, "MODELSCOPE_ENDPOINT": url, **env})


def downloads(store: Store, hub: FakeHub) -> Downloads:
    return Downloads(store, registries={"modelscope": lambda model: scope(hub.url)})


async def test_a_model(hub: FakeHub, store: Store, cache: Path) -> None:
    hub.write("o/n", "deep/m-Q4_K_M.gguf", BYTES)
    wanted = model("o/n:deep/m-Q4_K_M.gguf", registry="modelscope")
    await downloads(store, hub).ensure(wanted)
    path = store.locate(wanted)["main"]
    assert path is not None and path.read_bytes() == BYTES
    assert path.relative_to(cache).parts[0] == "modelscope--models--o--n"


async def test_wrong_bytes_are_not_kept(hub: FakeHub, store: Store) -> None:
    hub.write("o/n", "m-Q4_K_M.gguf", BYTES)
    hub.set(wrong_times=1)
    wanted = model("o/n:Q4_K_M", registry="modelscope")
    await downloads(store, hub).ensure(wanted)
    path = store.locate(wanted)["main"]
    assert path is not None and path.read_bytes() == BYTES


def test_a_snapshot_is_named_after_what_is_in_it(hub: FakeHub) -> None:
    hub.write("o/n", "m.gguf", BYTES)
    first = scope(hub.url).listing("o/n")
    assert first.revision == scope(hub.url).listing("o/n").revision
    assert first.revision.startswith("modelscope-master-") and len(first.revision) == len("modelscope-master-") + 16
    assert [file.path for file in first.files] == ["m.gguf"], "folders are no files"
    hub.write("o/n", "m.gguf", BYTES + b"x")
    assert scope(hub.url).listing("o/n").revision != first.revision


def test_the_token_goes_to_its_hub(hub: FakeHub) -> None:
    hub.write("o/n", "m.gguf", BYTES)
    scope(hub.url, MODELSCOPE_API_TOKEN="ms-CANARY").listing("o/n")
    headers = hub.seen[-1].headers
    assert headers["authorization"] == "Bearer ms-CANARY"
    assert headers["cookie"] == "m_session_id=ms-CANARY"
    scope(hub.url).listing("o/n")
    assert not {"authorization", "cookie"} & hub.seen[-1].headers.keys(), "the other hub's token stays at home"


def test_refusals(hub: FakeHub) -> None:
    with pytest.raises(RepositoryNotFound):
        scope(hub.url).listing("o/nowhere")
    with pytest.raises(InvalidArgument):
        scope(hub.url).listing("../..")
    with pytest.raises(RegistryUnreachable, match="MODELSCOPE_ENDPOINT"):
        scope("http://127.0.0.1:9").listing("o/n")
    with pytest.raises(RegistryUnreachable, match="must begin with"):
        scope("ftp://x").listing("o/n")


def test_a_listing_that_leads_out_of_the_cache(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"Path": "../evil.gguf", "Type": "blob", "Size": 4, "Sha256": "a" * 64}]
    one = scope(hub.url)
    monkeypatch.setattr(one, "ask", lambda path, what: {"Data": {"Files": rows}})
    with pytest.raises(RegistryReplied, match="out of the cache"):
        one.listing("o/n")

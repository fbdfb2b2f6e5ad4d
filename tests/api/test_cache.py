from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.daemon import Daemon, gguf, wait_for
from tests.hub.fake_hub import FakeHub

PATH = "/internal/cleanup-cache"


def pull(site: Daemon, name: str, checkpoint: str) -> None:
    body = {"model_name": f"user.{name}", "recipe": "llamacpp", "checkpoint": checkpoint}
    assert site.post("/v1/pull", body).status == 200


def found(site: Daemon, **body: Any) -> dict[str, Any]:
    answer = site.post(PATH, body)
    assert answer.status == 200, answer.body
    result: dict[str, Any] = answer.json()
    return result


def test_what_nobody_uses_goes(site: Daemon, hub: FakeHub) -> None:
    assert site.post(PATH).json() == {"orphaned_files": [], "total_bytes": 0, "dry_run": True}
    head = gguf({})
    hub.write("o/old", "m-Q4_K_M.gguf", head + b"a" * 3000)
    hub.write("o/old", "m-Q8_0.gguf", head + b"b" * 4000)
    pull(site, "Small", "o/old:Q4_K_M")
    pull(site, "Large", "o/old:Q8_0")
    # Only the one is brought up to date; the other one's file stays in the old snapshot, where it is used.
    hub.write("o/old", "m-Q4_K_M.gguf", head + b"c" * 3500)
    pull(site, "Small", "o/old:Q4_K_M")
    # Somebody else's snapshot, without our note.
    other = site.folder / "hub" / "models--x--y" / "snapshots" / "abc"
    other.mkdir(parents=True)
    (other / "theirs.gguf").write_bytes(head)

    looked = found(site)
    (orphan,) = looked["orphaned_files"]
    assert Path(orphan["path"]).name == "m-Q4_K_M.gguf"
    assert {key: orphan[key] for key in ("size", "type", "belongs_to")} == {
        "size": len(head) + 3000,
        "type": "old_snapshot",
        "belongs_to": "o/old",
    }
    assert orphan["model"] in ("Small", "Large")
    assert (looked["total_bytes"], looked["dry_run"]) == (len(head) + 3000, True)
    assert Path(orphan["path"]).exists()

    removed = found(site, dry_run=False)
    assert (removed["orphaned_files"], removed["dry_run"]) == ([orphan], False)
    assert not Path(orphan["path"]).exists()
    sizes = {each.stat().st_size for each in (site.folder / "hub" / "models--o--old" / "blobs").iterdir()}
    assert sizes == {len(head) + 3500, len(head) + 4000}
    for name in ("Small", "Large"):
        assert site.get(f"/v1/models/{name}").json()["downloaded"] is True
        assert site.chat(name).status == 200
    assert (other / "theirs.gguf").exists()
    assert found(site)["orphaned_files"] == []


def test_a_paused_download_is_kept_and_a_forgotten_one_goes(site: Daemon, hub: FakeHub) -> None:
    hub.write("o/half", "m-Q4_K_M.gguf", gguf({}) + b"x" * 1_000_000)
    hub.set(rate=100_000)
    body = {"model_name": "user.Half", "recipe": "llamacpp", "checkpoint": "o/half:Q4_K_M"}
    job = site.post("/v1/pull", {**body, "stream": True, "subscribe": False}).json()["id"]
    wait_for(lambda: site.get("/v1/downloads").json()[-1]["bytes_downloaded"] > 0)
    assert found(site)["orphaned_files"] == []
    site.post("/v1/downloads/control", {"id": job, "action": "pause"})
    wait_for(lambda: not site.get("/v1/downloads").json()[-1]["running"])
    assert found(site)["orphaned_files"] == []
    site.post("/v1/downloads/control", {"id": job, "action": "remove"})
    (orphan,) = found(site, dry_run=False)["orphaned_files"]
    assert (orphan["type"], orphan["model"]) == ("partial", "Half")
    assert not (site.folder / "hub" / "models--o--half").exists()


def test_what_is_refused(site: Daemon) -> None:
    answer = site.post(PATH, {"dry_run": "no"})
    assert (answer.status, answer.error["param"]) == (400, "dry_run")

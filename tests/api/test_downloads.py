from __future__ import annotations

from typing import Any

import pytest

from tests.daemon import Daemon, gguf, wait_for
from tests.hub.fake_hub import FakeHub

SIZE = 2_000_000


def start(site: Daemon, hub: FakeHub, name: str) -> str:
    """Begins a download that takes long; its id."""
    hub.write(f"o/{name}", "m-Q4_K_M.gguf", gguf({}) + b"x" * SIZE)
    hub.set(rate=200_000)
    body = {"model_name": f"user.{name}", "recipe": "llamacpp", "checkpoint": f"o/{name}:Q4_K_M"}
    job: dict[str, Any] = site.post("/v1/pull", {**body, "stream": True, "subscribe": False}).json()
    wait_for(lambda: shown(site, job["id"])["bytes_downloaded"] > 0)
    return str(job["id"])


def shown(site: Daemon, wanted: str) -> dict[str, Any]:
    found: dict[str, Any] = next((each for each in site.get("/v1/downloads").json() if each["id"] == wanted), {})
    return found


def control(site: Daemon, wanted: str, action: str) -> dict[str, Any]:
    answer = site.post("/v1/downloads/control", {"id": wanted, "action": action})
    assert answer.status == 200, answer.body
    result: dict[str, Any] = answer.json()
    return result


def test_pause_and_resume(site: Daemon, hub: FakeHub) -> None:
    job = start(site, hub, "paused")
    assert control(site, job, "pause")["status"] == "paused"
    wait_for(lambda: not shown(site, job)["running"])
    kept = shown(site, job)["bytes_downloaded"]
    assert 0 < kept < SIZE
    hub.set()
    sent = hub.sent()
    assert control(site, job, "resume")["status"] == "downloading"
    wait_for(lambda: shown(site, job)["status"] == "completed")
    assert hub.sent() - sent < SIZE
    assert site.get("/v1/models/paused").json()["downloaded"] is True


def test_cancel_removes_what_came(site: Daemon, hub: FakeHub) -> None:
    job = start(site, hub, "cancelled")
    assert control(site, "model:cancelled", "cancel")["id"] == job  # the bare name will do
    wait_for(lambda: not shown(site, job)["running"])
    assert shown(site, job)["status"] == "cancelled"
    assert not list((site.folder / "hub").rglob("*cancelled*/blobs/*"))
    assert control(site, job, "remove") == {"status": "ok"}
    assert shown(site, job) == {}


def test_remove_cancels_what_runs(site: Daemon, hub: FakeHub) -> None:
    job = start(site, hub, "removed")
    assert control(site, job, "remove")["status"] == "cancelled"
    wait_for(lambda: not shown(site, job)["running"])


def test_a_failure_is_shown(site: Daemon, hub: FakeHub) -> None:
    body = {"model_name": "user.failing", "recipe": "llamacpp", "checkpoint": "o/failing:Q4_K_M"}
    job = site.post("/v1/pull", {**body, "stream": True, "subscribe": False}).json()["id"]
    wait_for(lambda: not shown(site, job)["running"])
    end = shown(site, job)
    assert (end["status"], end["code"], end["complete"]) == ("error", "repository_not_found", False)
    assert "o/failing" in end["error"]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "missing_argument"),
        ({"id": "model:nobody"}, 400, "missing_argument"),
        ({"id": "model:nobody", "action": "dance"}, 400, "invalid_argument"),
        ({"id": "model:nobody", "action": "pause"}, 404, "download_not_found"),
        ({"id": "model:nobody", "action": "resume"}, 404, "download_not_found"),
    ],
)
def test_what_is_refused(site: Daemon, body: dict[str, str], status: int, code: str) -> None:
    answer = site.post("/v1/downloads/control", body)
    assert (answer.status, answer.error["code"]) == (status, code)


def test_removing_what_there_is_not(site: Daemon) -> None:
    assert control(site, "model:nobody", "remove") == {"status": "ok", "missing": True}

from __future__ import annotations

from typing import Any

from tests.api.conftest import environment
from tests.daemon import Daemon, gguf
from tests.hub.fake_hub import FakeHub


def content(seed: str) -> bytes:
    return gguf({}) + seed.encode() * 2000


def pull(site: Daemon, name: str, variant: str = "Q4_K_M", **more: Any) -> None:
    body = {"model_name": f"user.{name}", "recipe": "llamacpp", "checkpoint": f"o/moving:{variant}", **more}
    assert site.post("/v1/pull", body).status == 200


def flags(site: Daemon) -> dict[str, bool]:
    return {row["id"]: row["update_available"] for row in site.get("/v1/models").json()["data"]}


def check(site: Daemon) -> Any:
    answer = site.post("/v1/models/check-updates")
    assert answer.status == 200, answer.body
    return answer.json()


def test_a_repository_that_moved_on(site: Daemon, hub: FakeHub) -> None:
    hub.write("o/moving", "m-Q4_K_M.gguf", content("a"))
    hub.write("o/moving", "m-Q8_0.gguf", content("b"))
    pull(site, "Small")
    pull(site, "Large", "Q8_0")
    pull(site, "Scope", source="modelscope")
    assert check(site) == {"status": "success", "updates_available": 0, "models": [], "unknown": []}

    # A commit that touches only the one, and a file that is of no model.
    hub.write("o/moving", "m-Q4_K_M.gguf", content("c"))
    hub.write("o/moving", "README.md", b"new")
    assert flags(site) == {"Small": False, "Large": False, "Scope": False}, "nobody has looked yet"
    assert check(site)["models"] == ["Scope", "Small"]
    assert flags(site) == {"Small": True, "Large": False, "Scope": True}
    assert site.get("/v1/models/Small").json()["update_available"] is True

    pull(site, "Small")
    assert flags(site) == {"Small": False, "Large": False, "Scope": True}
    path = site.get("/v1/models/Small?include_paths=true").json()["checkpoint_status"][0]["path"]
    with open(path, "rb") as file:
        assert file.read() == content("c")
    # The other one's file was not fetched again, and is still here.
    assert site.get("/v1/models/Large").json()["downloaded"] is True
    assert check(site)["models"] == ["Scope"]


def test_a_restart_keeps_what_was_found(site: Daemon, hub: FakeHub) -> None:
    assert flags(site)["Scope"] is True
    calls = hub.calls()
    site.stop()
    site.start()
    assert flags(site) == {"Small": False, "Large": False, "Scope": True}
    assert hub.calls() == calls


def test_hubs_that_do_not_answer(site: Daemon, hub: FakeHub) -> None:
    hub.set(listing_times=-1)
    answer = check(site)
    # ModelScope answers, so what is known of it counts; the others stay as they were.
    assert answer["models"] == ["Scope"]
    assert [each["model"] for each in answer["unknown"]] == ["Large", "Small"]


def test_nothing_is_asked_at_start(hub: FakeHub, tmp_path: Any) -> None:
    calls = hub.calls()
    with Daemon(tmp_path / "fresh", env=environment(hub)) as fresh:
        assert fresh.get("/v1/models?show_all=true").status == 200
        assert fresh.get("/v1/health").json()["update_check_done"] is True
    assert hub.calls() == calls

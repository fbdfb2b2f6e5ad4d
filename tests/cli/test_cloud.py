"""`lemonade cloud` against a real daemon and a strict provider."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lemonade.cli.main import arrange
from tests.cli.conftest import Shell
from tests.cli.terminal import Terminal
from tests.daemon import Daemon
from tests.engines.fake_provider import MODELS, FakeProvider

KEY = "ck-CANARY-cli-1"


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeProvider]:
    with FakeProvider(KEY) as one:
        yield one


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("site")) as one:
        yield one


@pytest.fixture
def shell(tmp_path: Path, site: Daemon) -> Shell:
    return Shell(tmp_path, site.port)


def test_from_nothing_to_an_answer_and_back(shell: Shell, fake: FakeProvider) -> None:
    assert "lemonade cloud install" in shell("cloud", "list").err
    refused = shell("cloud", "install", "afar", "--base-url", fake.url)
    assert (refused.code, "allow_insecure_http" in refused.err) == (1, True)
    made = shell("cloud", "install", "afar", "--base-url", fake.url, "--allow-insecure-http")
    assert made.code == 0, made.err
    assert "lemonade cloud auth afar" in made.err
    wrong = shell("cloud", "auth", "afar", stdin="ck-CANARY-wrong\n")
    assert "401" in wrong.err
    given = shell("cloud", "auth", "afar", stdin=f"{KEY}\n")
    assert given.code == 0, given.err
    assert f"afar offers {len(MODELS)} models" in given.err
    assert "LEMONADE_AFAR_API_KEY" in given.err
    row = next(line for line in shell("cloud", "list").out.splitlines() if line.startswith("afar"))
    assert row.split() == ["afar", fake.url, "openai", str(len(MODELS)), "until", "the", "daemon", "ends"]
    (parsed,) = json.loads(shell("cloud", "list", "--json").out)
    assert parsed["auth_state"] == {"env_var_set": False, "runtime_key_set": True}
    assert "afar.good" in shell("list", "--downloaded", "afar").out
    answered = shell("run", "afar.good", "hi")
    assert (answered.code, answered.out) == (0, "Hello from afar.\n"), answered.err
    assert "runs at its provider" in shell("load", "afar.good").err
    policy = {
        "version": "1",
        "recipe": "collection.router",
        "components": ["afar.good"],
        "routing": {"candidates": ["afar.good"], "default_model": "afar.good", "rules": []},
    }
    (shell.home / "policy.json").write_text(json.dumps(policy))
    made = shell("collection", "create", "Way", "--policy", str(shell.home / "policy.json"))
    assert made.code == 0, made.err
    assert "is a router" in shell("load", "user.Way").err
    assert "is forgotten" in shell("cloud", "clear", "afar").err
    assert "had no such key" in shell("cloud", "clear", "afar").err
    assert "afar is removed" in shell("cloud", "uninstall", "afar").err
    gone = shell("cloud", "uninstall", "afar")
    assert (gone.code, gone.err) == (1, "Error: Cloud provider 'afar' is not installed; installed are: none.\n")
    for file in (*shell.home.rglob("*"),):
        assert not file.is_file() or b"CANARY" not in file.read_bytes()


def test_the_key_as_an_option(shell: Shell, fake: FakeProvider) -> None:
    made = shell("cloud", "install", "afar", "--base-url", fake.url, "--allow-insecure-http", f"--api-key={KEY}")
    assert f"offers {len(MODELS)} models" in made.err, made.err
    assert shell("cloud", "auth", "afar", "--api-key", KEY).code == 0
    assert KEY not in made.out + made.err
    shell("cloud", "uninstall", "afar")


def test_a_person_is_asked_and_the_key_is_not_shown(shell: Shell, fake: FakeProvider) -> None:
    shell("cloud", "install", "afar", "--base-url", fake.url, "--allow-insecure-http")
    person = Terminal(shell.command("cloud", "auth", "afar"), shell.env)
    try:
        person.expect("Key of afar: ")
        person.type(f"{KEY}\n")
        assert "CANARY" not in person.expect(f"offers {len(MODELS)} models")
    finally:
        person.close()
    shell("cloud", "uninstall", "afar")


def test_whose_key_an_option_is() -> None:
    daemons = ["--api-key", "d"]
    assert arrange(["cloud", "auth", "p", "--api-key", "k", "--port", "1"]) == [
        "--port",
        "1",
        "cloud",
        "auth",
        "p",
        "--api-key",
        "k",
    ]
    assert arrange([*daemons, "cloud", "auth", "p"]) == [*daemons, "cloud", "auth", "p"]
    assert arrange(["run", "cloud", "--api-key", "d"]) == [*daemons, "run", "cloud"]

"""`lemonade route` and `lemonade collection` against a real daemon with fake engines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Shell
from tests.daemon import Daemon

POLICY: dict[str, Any] = {
    "version": "1",
    "recipe": "collection.router",
    "components": ["small", "big", "judge"],
    "routing": {
        "candidates": ["small", "big"],
        "default_model": "small",
        "classifiers": [
            {"id": "risk", "type": "llm", "model": "judge", "prompt": "Is it risky?", "labels": ["SAFE", "RISKY"]}
        ],
        "rules": [
            {"id": "long", "match": {"min_chars": 4000}, "route_to": "big"},
            {
                "id": "code",
                "match": {
                    "any": [
                        {"keywords_any": ["bug", "crash"], "has_tools": False},
                        {"not": {"classifier": "risk", "label": "SAFE", "max_score": 0.5}, "has_images": True},
                    ]
                },
                "route_to": "big",
                "outputs": {"reason": "code"},
            },
            {"id": "team", "match": {"metadata": {"key": "team", "equals": "red"}}, "route_to": "big"},
            {"id": "risky", "match": {"classifier": "risk", "label": "RISKY"}, "route_to": "big"},
        ],
    },
}
# A `not` stands alone.
POLICY["routing"]["rules"][1]["match"]["any"][1] = {
    "all": [{"has_images": True}, {"not": {"classifier": "risk", "label": "SAFE", "max_score": 0.5}}]
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    said = json.dumps({"model": "RISKY", "rationale": "it deletes files"})
    one = Daemon(tmp_path_factory.mktemp("world"), switches={"text": said})
    for name in ("small", "big", "judge"):
        one.add_model(name)
    with one:
        yield one


@pytest.fixture
def lemonade(tmp_path: Path, world: Daemon) -> Shell:
    return Shell(tmp_path, world.port)


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(POLICY))
    return str(path)


def test_the_decision_is_a_tree(lemonade: Shell, file: str) -> None:
    done = lemonade("route", file, "this bug")
    assert done.code == 0, done.err
    assert done.out.splitlines() == [
        "big  (rule code)",
        'outputs {"reason": "code"}',
        "├── long → big: no",
        "│   └── min_chars 4000: no",
        "├── code → big: yes",
        "│   └── any: yes",
        "│       ├── all: yes",
        "│       │   ├── has_tools false: yes",
        '│       │   └── keywords_any ["bug", "crash"]: yes',
        "│       └── all: not looked at",
        "│           ├── has_images true: not looked at",
        "│           └── not: not looked at",
        "│               └── classifier risk SAFE, 0 to 0.5: not looked at",
        "├── team → big: not looked at",
        "└── risky → big: not looked at",
    ]


def test_a_terminal_without_signs_for_trees(lemonade: Shell, file: str) -> None:
    done = lemonade("route", file, "this bug", env={"PYTHONIOENCODING": "ascii"})
    assert done.code == 0, done.err
    assert "|-- code > big: yes" in done.out


def test_what_models_said_is_in_it(lemonade: Shell, file: str) -> None:
    done = lemonade("route", file, "rm -rf /", "--tools", "--metadata", "team=blue")
    assert done.out.splitlines() == [
        "big  (rule risky)",
        "├── long → big: no",
        "│   └── min_chars 4000: no",
        "├── code → big: no",
        "│   └── any: no",
        "│       ├── all: no",
        "│       │   ├── has_tools false: no",
        '│       │   └── keywords_any ["bug", "crash"]: not looked at',
        "│       └── all: no",
        "│           ├── has_images true: no",
        "│           └── not: not looked at",
        "│               └── classifier risk SAFE, 0 to 0.5: not looked at",
        "├── team → big: no",
        '│   └── metadata {"key": "team", "equals": "red"}: no',
        "└── risky → big: yes",
        "    └── classifier risk RISKY, 0.5 to 1: yes, 1.00, it deletes files",
    ]
    done = lemonade("route", file, "a picture", "--images", "--metadata", "team=red")
    assert "└── not: no" in done.out
    assert "classifier risk SAFE, 0 to 0.5: yes, 0.00, it deletes files" in done.out
    assert done.out.startswith("big  (rule team)")


def test_as_json_and_by_the_name_of_a_router(lemonade: Shell, file: str) -> None:
    done = lemonade("collection", "create", "Router", "--policy", file)
    assert done.code == 0, done.err
    assert "user.Router is defined" in done.err
    done = lemonade("route", "user.Router", "soup", "--json")
    answer = json.loads(done.out)
    assert answer["decision"]["matched_rule"] == "risky"
    assert answer["normalized_policy"]["routing"] == POLICY["routing"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("missing.json", "x"), "missing.json"),
        (("/missing/policy", "x"), "/missing/policy"),
        (("small", "x"), "small is no router, but a model of the recipe llamacpp"),
        (("nobody", "x"), "was not found"),
        (("POLICY", "x", "--metadata", "team"), "is not KEY=VALUE"),
    ],
)
def test_what_is_no_policy(lemonade: Shell, file: str, arguments: tuple[str, ...], words: str) -> None:
    done = lemonade("route", *(file if word == "POLICY" else word for word in arguments))
    assert done.code != 0
    assert words in " ".join(done.err.split())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is no JSON"),
        ("[]", "holds no policy"),
        ('{"routing": {}}', "Invalid routing policy: 'components' must be an array of at least one string"),
        ('{"routing": 1}', "Invalid routing policy"),
        ('{"routing": {"candidates": 5, "classifiers": 5}}', "Invalid routing policy"),
        (json.dumps({**POLICY, "weights": 1}), "'weights' is not known here"),
    ],
)
def test_a_broken_file(lemonade: Shell, tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text)
    done = lemonade("route", str(path), "x")
    assert done.code == 1
    assert words in done.err


def test_a_collection_of_models_that_work_together(lemonade: Shell) -> None:
    done = lemonade("collection", "create", "user.Kit", "small", "big", "--system-prompt", "Be brief.")
    assert done.code == 0, done.err
    done = lemonade("collection", "show", "user.Kit")
    head, prompt, heading, *rows = done.out.splitlines()
    assert head == "user.Kit  (omni: the models work together)"
    assert prompt == "system prompt  Be brief."
    assert heading.split() == ["MODEL", "RECIPE", "SIZE", "DOWNLOADED"]
    assert [row.split()[0] for row in rows] == ["small", "big"]
    assert json.loads(lemonade("collection", "show", "user.Kit", "--json").out)["components"] == ["small", "big"]


def test_a_router_is_shown_with_its_policy(lemonade: Shell, file: str) -> None:
    lemonade("collection", "create", "Shown", "--policy", file)
    told = lemonade("collection", "show", "user.Shown").out
    assert told.startswith("user.Shown  (router: one of the models is chosen)")
    assert "candidates  small, big\ndefault     small\n" in told
    assert "classifier  risk: llm by judge\n" in told
    assert 'rule        long → big if {"min_chars": 4000}\n' in told


def test_what_goes_without_saying_may_be_left_out(lemonade: Shell, tmp_path: Path) -> None:
    short = {
        "routing": {"candidates": ["small", "big"], "default_model": "big", "router": {"type": "llm", "model": "judge"}}
    }
    path = tmp_path / "short.json"
    path.write_text(json.dumps(short))
    assert lemonade("route", str(path), "x").out.startswith("big  (no rule holds: the default)")
    assert lemonade("collection", "create", "Short", "--policy", str(path)).code == 0
    shown = json.loads(lemonade("collection", "show", "user.Short", "--json").out)
    assert shown["components"] == ["small", "big", "judge"]
    assert shown["routing"] == short["routing"]


@pytest.mark.parametrize("name", ["Again", "Together"])
def test_what_is_exported_can_be_imported(lemonade: Shell, world: Daemon, tmp_path: Path, file: str, name: str) -> None:
    arguments = ("--policy", file) if name == "Again" else ("small", "big")
    assert lemonade("collection", "create", name, *arguments).code == 0
    exported = str(tmp_path / "exported.json")
    done = lemonade("collection", "export", f"user.{name}", "--output", exported)
    assert done.code == 0, done.err
    before = world.get(f"/v1/models/user.{name}").json()
    assert world.post("/v1/delete", {"model_name": f"user.{name}"}).status == 200
    done = lemonade("collection", "import", exported)
    assert done.code == 0, done.err
    assert world.get(f"/v1/models/user.{name}").json() == before
    again = lemonade("collection", "export", f"user.{name}")
    assert json.loads(again.out) == json.loads(Path(exported).read_text())
    if name == "Again":
        assert lemonade("route", exported, "this bug").out.startswith("big  (rule code)")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("create", "X"), 2, "or a --policy"),
        (("create", "X", "small", "--policy", "POLICY"), 2, "or a --policy"),
        (("create", "X", "--policy", "POLICY", "--system-prompt", "x"), 2, "no prompt of its own"),
        (("create", "X", "nobody"), 1, "not registered"),
        (("show", "small"), 1, "small is no collection"),
        (("export", "small"), 1, "small is no collection"),
        (("import", "POLICY"), 1, "describes no model"),
    ],
)
def test_mistakes(lemonade: Shell, file: str, arguments: tuple[str, ...], code: int, words: str) -> None:
    done = lemonade("collection", *(file if word == "POLICY" else word for word in arguments))
    assert done.code == code
    assert words in " ".join(done.err.split())

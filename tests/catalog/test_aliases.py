from __future__ import annotations

from pathlib import Path

import pytest

from lemonade.catalog.aliases import MAX_DEPTH, Aliases, final
from lemonade.errors import AliasConflict, AliasNotFound, InvalidAlias


@pytest.fixture
def aliases(tmp_path: Path) -> Aliases:
    return Aliases(tmp_path / "aliases.json", {"Model", "user.Model"}.__contains__)


def test_an_alias_means_its_target(aliases: Aliases) -> None:
    aliases.add(" gpt-4o ", " Model ")
    aliases.add("gpt", "gpt-4o")
    aliases.add("later", "not-here-yet")
    assert aliases.all() == {"gpt": "gpt-4o", "gpt-4o": "Model", "later": "not-here-yet"}
    assert aliases.target("gpt") == "Model"
    assert aliases.target("later") == "not-here-yet"
    assert aliases.target("Model") is None
    aliases.add("gpt-4o", "Other")
    assert aliases.target("gpt") == "Other"
    aliases.remove("gpt-4o")
    assert aliases.target("gpt") == "gpt-4o"


@pytest.mark.parametrize(
    ("alias", "target", "error", "message"),
    [
        ("", "Model", InvalidAlias, "Alias and target fields are required"),
        ("a", "  ", InvalidAlias, "Alias and target fields are required"),
        ("a", "a", InvalidAlias, "Alias cannot point to itself"),
        ("user.a", "Model", InvalidAlias, "Alias name cannot use reserved prefixes (user., extra., builtin.)"),
        ("a\nb", "Model", InvalidAlias, "control characters"),
        (
            "Model",
            "x",
            AliasConflict,
            "Cannot create alias 'Model': Name conflicts with an existing canonical model",
        ),
    ],
)
def test_refused(aliases: Aliases, alias: str, target: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        aliases.add(alias, target)
    assert message in str(caught.value)
    assert aliases.all() == {}


def test_circles_are_refused(aliases: Aliases) -> None:
    aliases.add("a", "b")
    aliases.add("b", "c")
    with pytest.raises(AliasConflict):
        aliases.add("c", "a")
    assert aliases.target("a") == "c"


def test_chains_are_bounded_from_both_ends(aliases: Aliases) -> None:
    for number in range(1, MAX_DEPTH + 1):
        aliases.add(f"a{number}", f"a{number - 1}")
    assert aliases.target(f"a{MAX_DEPTH}") == "a0"
    with pytest.raises(AliasConflict):
        aliases.add("one-more", f"a{MAX_DEPTH}")
    with pytest.raises(AliasConflict):
        aliases.add("a0", "Model")


def test_circles_in_the_file_are_overlooked(tmp_path: Path, aliases: Aliases) -> None:
    (tmp_path / "aliases.json").write_text('{"a": "b", "b": "a", "c": "b", "d": "Model", "e": 5}')
    assert aliases.all() == {"d": "Model"}
    aliases.add("f", "d")
    assert aliases.target("f") == "Model"


def test_an_unknown_alias_cannot_be_removed(aliases: Aliases) -> None:
    with pytest.raises(AliasNotFound, match="Alias not found: x") as caught:
        aliases.remove("x")
    assert (caught.value.status, caught.value.param) == (404, "alias")


def test_final_ends_for_every_chain() -> None:
    assert final("a", {"a": "a"}) is None
    assert final("a", {}) == "a"

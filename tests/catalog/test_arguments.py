from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lemonade.catalog.arguments import flags, merge


@pytest.mark.parametrize(
    ("high", "low", "merged"),
    [
        ("", "--b 1 --a 2", "--b 1 --a 2"),
        ("--b 1  --a 2", "", "--b 1  --a 2"),
        ("--temp 0.2", "--top-k 5 --temp 0.9", "--temp 0.2 --top-k 5"),
        ("--no-mmap", "--mmap --threads 2", "--no-mmap --threads 2"),
        ("--mmap", "--no-mmap -t 2", "--mmap -t 2"),
        ("--temp=0.2", "--temp 0.9 -x", "--temp 0.2 -x"),
        ("--seed -1", "--temp -0.5", "--seed -1 --temp -0.5"),
        ("--lora a --x --lora b", "--lora c --y", "--lora a --lora b --x --y"),
        ("--kwargs '{\"a\": 1}'", '--y "two words"', '--kwargs \'{"a": 1}\' --y "two words"'),
        ('--kwargs={"a":1}', "--z", '--kwargs {"a":1} --z'),
        ("-np 4", "--verbose", "--verbose -np 4"),
        # Nothing added: what a person typed stays as it is.
        ("--z 1 --a 2", "--a 3 --z 4", "--z 1 --a 2"),
        ("positional --x", "--y", "positional --x --y"),
        ("--x '", "--y", "--x ' --y"),
        ("  ", "\t", ""),
    ],
)
def test_merge(high: str, low: str, merged: str) -> None:
    assert merge(high, low) == merged


def test_flags() -> None:
    assert flags("x --a 1 -np 2 --b=3 --seed -1 '--not-one' --") == {"--a", "-np", "--b", "--seed", "--"}


names = st.sampled_from(["--a", "--b", "--no-a", "--no-b", "-c", "--d-e", "--f"])
values = st.sampled_from(["", "1", "-1", "-0.5", "x", "'two words'", '"quo\'ted"', "a=b", "é"])
arguments = st.lists(st.tuples(names, values).map(lambda pair: " ".join(filter(None, pair)))).map(" ".join)


def opposite(flag: str) -> str:
    return flag.replace("--no-", "--", 1) if flag.startswith("--no-") else flag.replace("--", "--no-", 1)


@given(arguments, arguments)
def test_each_flag_comes_whole_from_one_layer_and_the_higher_one_wins(high: str, low: str) -> None:
    merged = merge(high, low)
    above, below = flags(high), flags(low)
    kept = {flag for flag in below if flag not in above and opposite(flag) not in above}
    assert flags(merged) == above | kept if high and low else flags(merged) == above | below
    tokens = shlex.split(merged)
    for flag in above:
        assert tokens.count(flag) == shlex.split(high).count(flag)


@given(arguments, arguments)
def test_merging_again_changes_nothing(high: str, low: str) -> None:
    merged = merge(high, low)
    assert merge(merged, low) == merged
    assert merge(merged, merged) == merged.strip()


@given(arguments, arguments, arguments)
def test_the_layers_may_be_merged_from_either_end(a: str, b: str, c: str) -> None:
    if all((a, b, c)):
        assert flags(a) <= flags(merge(a, merge(b, c))) & flags(merge(merge(a, b), c))


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_text_is_merged_without_losing_the_higher_layer(high: str, low: str) -> None:
    merged = merge(high, low)
    assert flags(high) <= flags(merged)

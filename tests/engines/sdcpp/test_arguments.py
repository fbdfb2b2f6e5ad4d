from __future__ import annotations

from pathlib import Path

import pytest

from lemonade.engines.sdcpp.arguments import RESERVED, TAKEN, Member, parse, refuse_reserved, split
from lemonade.errors import InvalidArgument


def refused(words: list[str]) -> str:
    with pytest.raises(InvalidArgument) as caught:
        parse(words)
    assert caught.value.param == "sdcpp_args"
    return caught.value.message


def test_words() -> None:
    assert split("--fa  --type=q8_0 --lora-model-dir '/a b'") == ["--fa", "--type", "q8_0", "--lora-model-dir", "/a b"]
    with pytest.raises(InvalidArgument, match="quotation"):
        split("--type 'q8_0")


def test_what_the_catalog_says_is_understood() -> None:
    made = parse(split("--diffusion-fa --offload-to-cpu"))
    assert made.context == {"diffusion_flash_attn": True}
    assert not made.picture
    assert not made.sampling


def test_values_go_to_their_places(tmp_path: Path) -> None:
    words = ["-t", "3", "--vae-tiling", "--vae-tile-size", "64x32", "--guidance", "2.5", "--scheduler", "karras"]
    made = parse([*words, "--type", "q4_K", "--lora-model-dir", str(tmp_path), "--prediction", "sd3_flow"])
    assert made.context == {
        "n_threads": 3,
        "wtype": Member("SDType", "Q4_K"),
        "prediction": Member("Prediction", "FLOW"),
    }
    assert made.picture == {"vae_tiling_enabled": True, "vae_tile_size": [64, 32]}
    assert made.sampling == {"distilled_guidance": 2.5, "scheduler": Member("Scheduler", "KARRAS")}
    assert made.host == {"lora_dir": f"{tmp_path}/"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--type", "q9"], "must be one of f32"),
        (["--type"], "needs a value"),
        (["--type", "--fa"], "needs a value"),
        (["--threads", "many"], "must be a whole number"),
        (["--strength", "1.5"], "from 0 to 1"),
        (["--taesd", "/no/such/file"], "must be a file that is there"),
        (["--vae-tile-size", "1x2x3"], "two with an x"),
        (["--steps", "4"], "is the option 'steps' here"),
        (["--sampling-method", "euler"], "is the option 'sampling_method'"),
        (["--difusion-fa"], "Did you mean --diffusion-fa"),
        (["--server-only"], "an sd-server may take it"),
        (["stray"], "belongs to no flag"),
    ],
)
def test_what_is_refused(words: list[str], message: str) -> None:
    assert message in refused(words)


@pytest.mark.parametrize("word", sorted(RESERVED))
def test_what_the_daemon_says_itself(word: str) -> None:
    with pytest.raises(InvalidArgument, match="managed by Lemonade") as caught:
        refuse_reserved(["--fa", word, "x"])
    assert f"'{word}'" in caught.value.message
    assert "Reserved arguments: " in caught.value.message


@pytest.mark.real
def test_the_library_has_what_the_flags_change() -> None:
    """In its own process, as it takes the terminal over when it is loaded."""
    import subprocess
    import sys

    changes = {(flag.place, flag.attribute) for flag in TAKEN if flag.place in ("context", "picture", "sampling")}
    program = f"""
import cyllama.sd as sd
kinds = {{"context": sd.SDContextParams, "picture": sd.SDImageGenParams, "sampling": sd.SDSampleParams}}
print(sorted(name for place, name in {sorted(changes)!r} if not hasattr(kinds[place], name)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, timeout=60)
    assert done.stdout.decode().strip() == "[]"

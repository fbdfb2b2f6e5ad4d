from __future__ import annotations

import pytest

from lemonade.errors import FileNotInRepository
from lemonade.hub.selection import choose, quantisation, select, variants
from lemonade.model import Checkpoint

REPO = [
    ".gitattributes",
    "BF16/Big-BF16-00001-of-00002.gguf",
    "BF16/Big-BF16-00002-of-00002.gguf",
    "Big-Q4_K_M.gguf",
    "Big-Q6_K-00001-of-00003.gguf",
    "Big-Q6_K-00002-of-00003.gguf",
    "Big-Q6_K-00003-of-00003.gguf",
    "Big-Q8_0.gguf",
    "Big-UD-IQ2_M.gguf",
    "Big-UD-Q4_K_XL.gguf",
    "README.md",
    "UD-Q2_K_XL/Big-UD-Q2_K_XL-00001-of-00002.gguf",
    "UD-Q2_K_XL/Big-UD-Q2_K_XL-00002-of-00002.gguf",
    "config.json",
    "mmproj-BF16.gguf",
    "mmproj-F16.gguf",
    "mtp-Big.gguf",
]


@pytest.mark.parametrize(
    ("variant", "primary", "required"),
    [
        ("Q4_K_M", "Big-Q4_K_M.gguf", ["Big-Q4_K_M.gguf"]),
        ("q4_k_m", "Big-Q4_K_M.gguf", ["Big-Q4_K_M.gguf"]),
        ("UD-Q4_K_XL", "Big-UD-Q4_K_XL.gguf", ["Big-UD-Q4_K_XL.gguf"]),
        ("UD-IQ2_M", "Big-UD-IQ2_M.gguf", ["Big-UD-IQ2_M.gguf"]),
        ("Big-Q8_0.gguf", "Big-Q8_0.gguf", ["Big-Q8_0.gguf"]),
        ("Q6_K", "Big-Q6_K-00001-of-00003.gguf", [f"Big-Q6_K-0000{number}-of-00003.gguf" for number in (1, 2, 3)]),
        (
            "Big-Q6_K-00001-of-00003.gguf",
            "Big-Q6_K-00001-of-00003.gguf",
            [f"Big-Q6_K-0000{number}-of-00003.gguf" for number in (1, 2, 3)],
        ),
        (
            "UD-Q2_K_XL",
            "UD-Q2_K_XL/Big-UD-Q2_K_XL-00001-of-00002.gguf",
            [f"UD-Q2_K_XL/Big-UD-Q2_K_XL-0000{number}-of-00002.gguf" for number in (1, 2)],
        ),
        (
            "BF16",
            "BF16/Big-BF16-00001-of-00002.gguf",
            [f"BF16/Big-BF16-0000{number}-of-00002.gguf" for number in (1, 2)],
        ),
    ],
)
def test_llamacpp_variants(variant: str, primary: str, required: list[str]) -> None:
    chosen = choose(REPO, Checkpoint("o/n", variant), role="main", recipe="llamacpp")
    assert chosen.primary == primary
    assert list(chosen.required) == required
    assert chosen.extras == ("config.json",)
    assert select(REPO, Checkpoint("o/n", variant), role="main", recipe="llamacpp") == sorted(
        [*required, "config.json"]
    )


def test_all_gguf_files() -> None:
    chosen = choose(REPO, Checkpoint("o/n", "*"), role="main", recipe="llamacpp")
    assert chosen.primary == "BF16/Big-BF16-00001-of-00002.gguf"
    assert set(chosen.required) == {name for name in REPO if name.endswith(".gguf")}


def test_a_bare_repository_is_taken_whole_and_opened_at_its_first_model() -> None:
    names = ["README.md", "mmproj-F16.gguf", "one.gguf", "two.gguf"]
    chosen = choose(names, Checkpoint("o/n"), role="main", recipe="llamacpp")
    assert (chosen.primary, list(chosen.required)) == ("one.gguf", names)


@pytest.mark.parametrize("variant", ["Q3_K_S", "Q4", "Big", "nothing.gguf", "folder/"])
def test_what_is_not_there_names_what_is(variant: str) -> None:
    with pytest.raises(FileNotInRepository, match=r"offers: Q4_K_M, UD-Q4_K_XL, Q8_0"):
        select(REPO, Checkpoint("o/n", variant), role="main", recipe="llamacpp")


def test_no_quantisation_stands_in_for_another() -> None:
    with pytest.raises(FileNotInRepository):
        select(["m-UD-Q4_K_XL.gguf"], Checkpoint("o/n", "Q4_K_M"), role="main", recipe="llamacpp")


def test_a_name_that_fits_several_files() -> None:
    names = ["a-Q4_0.gguf", "b-Q4_0.gguf"]
    with pytest.raises(FileNotInRepository, match="several files"):
        select(names, Checkpoint("o/n", "Q4_0"), role="main", recipe="llamacpp")
    assert select(names, Checkpoint("o/n", "a-Q4_0"), role="main", recipe="llamacpp") == ["a-Q4_0.gguf"]


def test_a_missing_shard_is_named() -> None:
    names = ["m-Q8_0-00001-of-00003.gguf", "m-Q8_0-00003-of-00003.gguf"]
    with pytest.raises(FileNotInRepository, match="part 2 is missing"):
        select(names, Checkpoint("o/n", "Q8_0"), role="main", recipe="llamacpp")


def test_a_folder_named_by_its_end() -> None:
    names = ["model-special/a.gguf", "model-special/b.gguf", "x-Q8_0.gguf"]
    chosen = select(names, Checkpoint("o/n", "special"), role="main", recipe="llamacpp")
    assert chosen == ["model-special/a.gguf", "model-special/b.gguf"]


@pytest.mark.parametrize(
    ("role", "variant", "found"),
    [
        ("mmproj", "mmproj-F16.gguf", "mmproj-F16.gguf"),
        ("draft", "mtp-Big.gguf", "mtp-Big.gguf"),
        ("vae", "ae.safetensors", "split_files/vae/ae.safetensors"),
        ("vae", "split_files/vae/ae.safetensors", "split_files/vae/ae.safetensors"),
    ],
)
def test_other_roles_name_one_file(role: str, variant: str, found: str) -> None:
    names = [*REPO, "split_files/vae/ae.safetensors"]
    assert select(names, Checkpoint("o/n", variant), role=role, recipe="llamacpp") == [found]


def test_other_roles_must_name_a_file() -> None:
    with pytest.raises(FileNotInRepository, match="must name a file"):
        select(REPO, Checkpoint("o/n"), role="mmproj", recipe="llamacpp")


@pytest.mark.parametrize(
    ("recipe", "names", "variant", "primary", "required"),
    [
        ("whispercpp", ["ggml-tiny.bin", "ggml-base.bin"], "ggml-base.bin", "ggml-base.bin", ["ggml-base.bin"]),
        ("moonshine", ["onnx/tiny/a.ort", "onnx/tiny/t.json", "onnx/base/a.ort"], "onnx/tiny", "onnx/tiny", 2),
        ("moonshine", ["onnx/tiny/a.ort", "onnx/tiny-x/a.ort"], "onnx/tiny", "onnx/tiny", 1),
        ("kokoro", ["index.json", "voices/a.bin"], "", "index.json", 2),
        ("kokoro", ["k.onnx", "voices-v1.0.bin", "README.md"], "", "", 3),
        ("kokoro", ["onnx/model.onnx", "voices/a.bin"], "", "", 2),
        ("kokoro", ["k.onnx", "README.md"], "", None, 2),
        ("kokoro", ["onnx/a.onnx", "onnx/b.onnx", "voices/x.bin", "voices/y.bin"], "onnx/a.onnx", "onnx/a.onnx", 3),
        ("ryzenai-llm", ["sub/genai_config.json", "sub/m.onnx"], "", "sub", 2),
        ("onnxruntime", ["q/model.onnx", "q/tokenizer.json", "q/config.json", "README.md"], "", "q", 4),
        ("vllm", ["config.json", "model.safetensors"], "", "", 2),
        ("vllm", ["config.json"], "", None, 1),
        ("openmoss", ["moss.gguf", "moss.extras.gguf", "x.gguf"], "moss.gguf", "moss.gguf", 2),
        ("thinksound", ["dit-bf16.gguf", "t5-bf16.gguf", "other.gguf"], "", "", 2),
        ("acestep", ["a.gguf", "vae-BF16.gguf", "z.gguf"], "a.gguf", "a.gguf", 2),
        ("sd-cpp", ["a.safetensors", "b.safetensors"], "b.safetensors", "b.safetensors", 1),
        ("collection.omni", ["Lite.json"], "", "", 1),
    ],
)
def test_recipes(recipe: str, names: list[str], variant: str, primary: str | None, required: list[str] | int) -> None:
    chosen = choose(names, Checkpoint("o/n", variant), role="main", recipe=recipe)
    assert chosen.primary == primary
    assert len(chosen.required) == (required if isinstance(required, int) else len(required))


def test_variants_in_the_order_of_preference() -> None:
    found = variants(REPO)
    assert [each.name for each in found] == ["Q4_K_M", "UD-Q4_K_XL", "Q8_0", "BF16", "Q6_K", "UD-IQ2_M", "UD-Q2_K_XL"]
    assert {each.name for each in found if each.sharded} == {"BF16", "Q6_K", "UD-Q2_K_XL"}


def test_variants_of_one_token_take_the_names_of_their_files() -> None:
    assert [each.name for each in variants(["a-Q4_0.gguf", "b-Q4_0.gguf"])] == ["a-Q4_0", "b-Q4_0"]


def test_variants_without_tokens() -> None:
    assert [each.name for each in variants(["a.gguf", "b.gguf"])] == ["a.gguf", "b.gguf"]
    assert [each.name for each in variants(["a.gguf", "b-F16.gguf"])] == ["F16"]


@pytest.mark.parametrize(
    ("name", "token"),
    [
        ("Qwen3-0.6B-Q4_0.gguf", "Q4_0"),
        ("jan-nano-128k-q4_k_m.gguf", "Q4_K_M"),
        ("Model_Q8_0.gguf", "Q8_0"),
        ("model.IQ3_XXS.gguf", "IQ3_XXS"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
        ("Qwen3-Coder-Next-MXFP4_MOE.gguf", "MXFP4_MOE"),
        ("gemma-3-270m-it-UD-IQ2_M.gguf", "UD-IQ2_M"),
        ("Bonsai-Q1_0.gguf", "Q1_0"),
        ("FQ4_0x.gguf", None),
        ("plain.gguf", None),
    ],
)
def test_quantisation(name: str, token: str | None) -> None:
    assert quantisation(name) == token

from __future__ import annotations

from pathlib import Path

import pytest

from lemonade.engines.llamacpp.arguments import RESERVED, mentions, parse, refuse_reserved, split
from lemonade.engines.llamacpp.flags import MANAGED, SERVER_ONLY, TAKEN
from lemonade.engines.llamacpp.host import apply
from lemonade.engines.llamacpp.words import Member, Setting
from lemonade.errors import InvalidArgument


def values(text: str) -> dict[str, object]:
    return {setting.attribute: setting.value for setting in parse(split(text))}


def refused(text: str) -> str:
    with pytest.raises(InvalidArgument) as caught:
        words = split(text)
        refuse_reserved(words)
        parse(words)
    assert caught.value.param == "llamacpp_args"
    assert caught.value.message.startswith("Invalid custom llama-server arguments:\n")
    return caught.value.message


def test_quotes_and_equal_signs() -> None:
    assert split("--temp=0.5 -fa on --chat-template 'a b' --x=\"c d\"") == [
        *("--temp", "0.5", "-fa", "on", "--chat-template", "a b", "--x", "c d")
    ]
    assert split("--override-tensor exps=CPU") == ["--override-tensor", "exps=CPU"]
    assert split("  ") == []


def test_sampling_defaults_are_chosen_over_the_models_own() -> None:
    settings = parse(split("--temp 0.6 --top-k 20"))
    assert Setting("sampling.temp", 0.6) in settings
    assert Setting("sampling.top_k", 20) in settings
    bits = [setting.value for setting in settings if setting.how == "bit"]
    assert [bit.name.removeprefix("COMMON_PARAMS_SAMPLING_CONFIG_") for bit in bits] == ["TEMP", "TOP_K"]


@pytest.mark.parametrize(
    ("text", "attribute", "value"),
    [
        ("-t 3", "cpuparams.n_threads", 3),
        ("-t 0", "cpuparams.n_threads", -1),
        ("-tbd 0", "speculative.draft.cpuparams_batch.n_threads", -1),
        ("--threads=3", "cpuparams.n_threads", 3),
        ("--top_k 7", "sampling.top_k", 7),
        ("--top-k -1", "sampling.top_k", -1),
        ("--parallel 4", "n_parallel", 4),
        ("-np 4", "n_parallel", 4),
        ("-b 64", "n_batch", 64),
        ("-ctk q8_0", "cache_type_k", Member("ggml_type", "GGML_TYPE_Q8_0")),
        ("-fa off", "flash_attn_type", Member("llama_flash_attn_type", "LLAMA_FLASH_ATTN_TYPE_DISABLED")),
        ("--no-mmap", "load_mode", Member("llama_load_mode", "LLAMA_LOAD_MODE_NONE")),
        ("--mlock", "load_mode", Member("llama_load_mode", "LLAMA_LOAD_MODE_MMAP_MLOCK")),
        ("-nkvo", "no_kv_offload", True),
        ("--kv-offload", "no_kv_offload", False),
        ("--no-kv-unified", "kv_unified", False),
        ("--n-predict -1", "n_predict", -1),
        ("--seed -1", "sampling.seed", 2**32 - 1),
        ("--presence-penalty -0.5", "sampling.penalty_present", -0.5),
        ("--rope-scale 4", "rope_freq_scale", 0.25),
        ("--reasoning-budget 0", "sampling.reasoning_budget_tokens", 0),
        ("--chat-template-kwargs '{\"a\": true}'", "default_template_kwargs", {"a": "true"}),
        ("--spec-draft-n-max 3", "speculative.draft.n_max", 3),
        ("--draft-max 3", "speculative.draft.n_max", 3),
        ("-ngl all", "n_gpu_layers", -2),
        ("-v", "verbosity", 2**31 - 1),
        ("--samplers 'top_k;temp'", "sampling.samplers", "top_k;temperature"),
    ],
)
def test_what_a_flag_sets(text: str, attribute: str, value: object) -> None:
    assert values(text)[attribute] == value


def test_a_file_is_read(tmp_path: Path) -> None:
    template = tmp_path / "template.jinja"
    template.write_text("{{ messages }}")
    assert values(f"--chat-template-file {template}") == {"chat_template": "{{ messages }}"}
    assert "must be a text file" in refused(f"--chat-template-file {tmp_path / 'none'}")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("--no-such-flag", "unknown argument '--no-such-flag'"),
        ("--temprature 1", "Did you mean --temp"),
        ("--temp", "'--temp' needs a value"),
        ("--temp --top-k 3", "'--temp' needs a value"),
        ("--temp hot", "'--temp' must be a number"),
        ("--temp nan", "'--temp' must be a number"),
        ("--top-k 1.5", "'--top-k' must be a whole number"),
        ("--top-p 2", "'--top-p' must be a number from 0 to 1, not '2'"),
        ("-ctk q9", "must be one of f32, f16"),
        ("-fa maybe", "must be one of on"),
        ("--parallel 0", "from 1 to 256"),
        ("--parallel 257", "from 1 to 256"),
        ("--threads 2147483648", "of at most 2147483647"),
        ("--batch-size 99999999999", "of at most 2147483647"),
        ("--batch-size 0", "of at least 1"),
        (f"--threads {'9' * 5000}", "must be a whole number"),
        ("--samplers nonsense", "'nonsense'"),
        ("--chat-template-kwargs [1]", "must be a JSON object"),
        ("--lora /no/such/file", "must be a file that is there"),
        ("--spec-type magic", "must be one of none, draft-simple"),
        ("stray", "'stray' belongs to no flag"),
        ("--temp 1 'open", "No closing quotation"),
        ("--override-kv a=int:1", "a llama-server on PATH takes it"),
        ("--port 1234", "Argument '--port' is managed by Lemonade and cannot be overridden."),
        ("--host 0.0.0.0", "'--host' is managed"),
        ("--ctx_size=5", "'--ctx_size' is managed"),
    ],
)
def test_what_is_refused_and_why(text: str, reason: str) -> None:
    assert reason in refused(text)


def test_all_offenders_are_named_with_the_list() -> None:
    message = refused("--port 1 --temp 1 -m x --no-jinja")
    for name in ("--port", "-m", "--no-jinja"):
        assert f"Argument '{name}' is managed" in message
    assert "Argument '--temp'" not in message
    assert "Reserved arguments: " in message
    assert "--rerank" in message


def test_no_spelling_means_two_things() -> None:
    names = [name for flag in (*MANAGED, *TAKEN) for name in flag.names] + list(SERVER_ONLY)
    assert len(names) == len(set(names))
    assert not RESERVED & ({name for flag in TAKEN for name in flag.names} | SERVER_ONLY)


def test_mentions_knows_all_spellings() -> None:
    assert mentions(split("-tb 1 -t 2"), "--threads")
    assert not mentions(split("-tb 1"), "--threads")


SAMPLES = (
    *("1", "0.5", "on", "auto", "none", "q8_0", "mmap", "mean", "yarn", "layer", "isolate", "greedy", "deepseek"),
    *("{}", "top_k", "ngram-mod", "exps=CPU", "1,2", __file__, f"{__file__}:0.5", str(Path(__file__).parent)),
)


def sample(settings: object) -> tuple[str, list[Setting]]:
    assert callable(settings)
    for word in SAMPLES:
        try:
            return word, settings(word)
        except ValueError:
            continue
    raise AssertionError("no sample fits")


@pytest.mark.parametrize("flag", (*MANAGED, *TAKEN), ids=lambda flag: flag.names[-1])
def test_the_bundled_engine_has_what_every_flag_sets(flag: object, tmp_path: Path) -> None:
    import xllamacpp

    from lemonade.engines.llamacpp.words import Flag

    assert isinstance(flag, Flag)
    if flag.names[-1] == "--json-schema-file":
        schema = tmp_path / "schema.json"
        schema.write_text('{"type": "object"}')
        settings = flag.settings(str(schema))
    else:
        settings = sample(flag.settings)[1] if flag.values else flag.settings()
    params = xllamacpp.CommonParams()
    apply(params, settings)
    for attribute, value, how in settings:
        owner: object = params
        for part in attribute.split("."):
            owner = getattr(owner, part)
        if how == "add":
            assert len(owner) >= 1  # type: ignore[arg-type]
        elif how == "set" and isinstance(value, bool | int | str):
            assert owner == value
        elif how == "set" and isinstance(value, float):
            assert owner == pytest.approx(value)

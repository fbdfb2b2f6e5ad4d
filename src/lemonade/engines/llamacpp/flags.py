"""Which of llama-server's command-line flags the bundled engine takes, and what each sets.

The bundled engine is llama.cpp's server as a library: it takes no command line but a tree of parameters
(`xllamacpp.CommonParams`). This table translates. Names and meanings are llama-server's own (`llama-server --help`);
an attribute is a dotted path in the tree.
"""

from __future__ import annotations

import json

from lemonade.engines.llamacpp.words import (
    Flag,
    Member,
    Setting,
    bare,
    listed,
    members,
    override,
    pair,
    preserve,
    reasoning,
    samplers,
    scaled,
    schema,
    switched,
    templates,
    valued,
)
from lemonade.engines.words import choice, contents, directory, existing, names_in, number, numbers, text, whole

#: Most requests at once. Source: llama.cpp's LLAMA_MAX_SEQ.
MAX_SLOTS = 256

_USER = Member("common_grammar_type", "COMMON_GRAMMAR_TYPE_USER")
_OUTPUT = Member("common_grammar_type", "COMMON_GRAMMAR_TYPE_OUTPUT_FORMAT")
_CACHE = choice(
    members("ggml_type", "GGML_TYPE_", *["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"])
)
_FLASH = "LLAMA_FLASH_ATTN_TYPE_"
_SPECULATIVE = members(
    "common_speculative_type",
    "COMMON_SPECULATIVE_TYPE_",
    *["none", "draft-simple", "draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark"],
    *["ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache"],
)
_LOAD = members("llama_load_mode", "LLAMA_LOAD_MODE_", "auto", "none", "mmap", "mlock", dio="DIRECT_IO")
_LOAD["mmap+mlock"] = Member("llama_load_mode", "LLAMA_LOAD_MODE_MMAP_MLOCK")
_LAYERS = choice({"auto": -1, "all": -2})


def _layers(word: str) -> int:
    return int(_LAYERS(word)) if word in ("auto", "all") else int(whole(0)(word))


def _threads(word: str) -> int:
    """0 is as many as llama.cpp thinks good, like what is below; the library would fail with it."""
    return int(whole()(word)) or -1


def _priority(word: str) -> Member:
    names = {"-1": "LOW", "0": "NORMAL", "1": "MEDIUM", "2": "HIGH", "3": "REALTIME"}
    return Member("ggml_sched_priority", "GGML_SCHED_PRIO_" + choice(names)(word))


def _ngram(kind: str) -> list[Flag]:
    where = "speculative." + kind.replace("-", "_")
    return [
        valued(f"--spec-{kind}-size-n", whole(1, 1024), f"{where}.size_n"),
        valued(f"--spec-{kind}-size-m", whole(1, 1024), f"{where}.size_m"),
        valued(f"--spec-{kind}-min-hits", whole(1), f"{where}.min_hits"),
    ]


_DRAFT = "speculative.draft."

#: What the daemon sets itself; refused in a user's arguments (see `arguments.py`), taken by the host program.
MANAGED: tuple[Flag, ...] = (
    valued("-m --model", text, "model.path"),
    valued("-c --ctx-size", whole(0), "n_ctx"),
    valued("--port", whole(1, 65535), "port"),
    listed("-a --alias", lambda word: [word], "model_alias"),
    *pair("--jinja", "--no-jinja", "use_jinja"),
    bare("--metrics", Setting("endpoint_metrics", True)),
    valued("-mm --mmproj", text, "mmproj.path"),
    valued("-md --model-draft --spec-draft-model", text, _DRAFT + "mparams.path"),
    bare("--embedding --embeddings", Setting("embedding", True)),
    bare(
        "--rerank --reranking",
        Setting("embedding", True),
        Setting("pooling_type", Member("llama_pooling_type", "LLAMA_POOLING_TYPE_RANK")),
    ),
)

#: What a user may say.
TAKEN: tuple[Flag, ...] = (
    # Work and memory.
    valued("-t --threads", _threads, "cpuparams.n_threads"),
    valued("-tb --threads-batch", _threads, "cpuparams_batch.n_threads"),
    valued("--threads-http", whole(-1), "n_threads_http"),
    valued("--prio", _priority, "cpuparams.priority"),
    valued("--prio-batch", _priority, "cpuparams_batch.priority"),
    valued("--poll", whole(0, 100), "cpuparams.poll"),
    valued("--poll-batch", whole(0, 100), "cpuparams_batch.poll"),
    valued("--cpu-strict", choice(switched(True, False)), "cpuparams.strict_cpu"),
    valued("--cpu-strict-batch", choice(switched(True, False)), "cpuparams_batch.strict_cpu"),
    valued(
        "--numa",
        choice(members("ggml_numa_strategy", "GGML_NUMA_STRATEGY_", "distribute", "isolate", "numactl")),
        "numa",
    ),
    valued("-b --batch-size", whole(1), "n_batch"),
    valued("-ub --ubatch-size", whole(1), "n_ubatch"),
    valued("-np --parallel", whole(1, MAX_SLOTS), "n_parallel"),
    *pair("-cb --cont-batching", "-nocb --no-cont-batching", "cont_batching"),
    *pair("-kvu --kv-unified", "-no-kvu --no-kv-unified", "kv_unified"),
    valued("--kv-unified-per-slot", whole(0), "kv_unified_per_slot"),
    valued("-ctk --cache-type-k", _CACHE, "cache_type_k"),
    valued("-ctv --cache-type-v", _CACHE, "cache_type_v"),
    valued(
        "-fa --flash-attn",
        choice(switched(*(Member("llama_flash_attn_type", _FLASH + name) for name in ("ENABLED", "DISABLED", "AUTO")))),
        "flash_attn_type",
    ),
    bare("--swa-full", Setting("swa_full", True)),
    valued("-ctxcp --swa-checkpoints --ctx-checkpoints", whole(0), "n_ctx_checkpoints"),
    valued("-cms --checkpoint-min-step", whole(0), "checkpoint_min_step"),
    valued("-cram --cache-ram", whole(-1), "cache_ram_mib"),
    *pair("--cache-idle-slots", "--no-cache-idle-slots", "cache_idle_slots"),
    *pair("--cache-prompt", "--no-cache-prompt", "cache_prompt"),
    valued("--cache-reuse", whole(0), "n_cache_reuse"),
    *pair("--context-shift", "--no-context-shift", "ctx_shift"),
    valued("--keep", whole(-1), "n_keep"),
    valued("-n --predict --n-predict", whole(-1), "n_predict"),
    *pair("--warmup", "--no-warmup", "warmup"),
    *pair("--perf", "--no-perf", "no_perf", False),
    bare("--check-tensors", Setting("check_tensors", True)),
    valued("-lm --load-mode", choice(_LOAD), "load_mode"),
    bare("--mmap", Setting("load_mode", _LOAD["mmap"])),
    bare("--no-mmap", Setting("load_mode", _LOAD["none"])),
    bare("--mlock", Setting("load_mode", _LOAD["mmap+mlock"])),
    valued(
        "-lzm --lazy-mode", choice(members("llama_lazy_mode", "LLAMA_LAZY_MODE_", "on", "auto", "off")), "lazy_mode"
    ),
    *pair("-kvo --kv-offload", "-nkvo --no-kv-offload", "no_kv_offload", False),
    *pair("--repack", "-nr --no-repack", "no_extra_bufts", False),
    *pair("--op-offload", "--no-op-offload", "no_op_offload", False),
    bare("--no-host", Setting("no_host", True)),
    valued("-ngl --gpu-layers --n-gpu-layers", _layers, "n_gpu_layers"),
    valued(
        "-sm --split-mode",
        choice(members("llama_split_mode", "LLAMA_SPLIT_MODE_", "none", "layer", "row", "tensor")),
        "split_mode",
    ),
    valued("-ts --tensor-split", numbers, "tensor_split"),
    valued("-mg --main-gpu", whole(0), "main_gpu"),
    valued("-ot --override-tensor", override, "tensor_buft_overrides"),
    valued("-fit --fit", choice(switched(True, False)), "fit_params"),
    valued("-fitc --fit-ctx", whole(0), "fit_params_min_ctx"),
    # Slots and the server.
    *pair("--slots", "--no-slots", "endpoint_slots"),
    bare("--props", Setting("endpoint_props", True)),
    valued("--slot-save-path", directory, "slot_save_path"),
    valued("--sleep-idle-seconds", whole(-1), "sleep_idle_seconds"),
    valued("-sps --slot-prompt-similarity", number(0, 1), "slot_prompt_similarity"),
    valued("-to --timeout", whole(1), "timeout_read", "timeout_write"),
    valued("--sse-ping-interval", whole(-1), "sse_ping_interval"),
    *pair("--ui --webui", "--no-ui --no-webui", "ui"),
    valued("--media-path", directory, "media_path"),
    listed("--tags", lambda word: [part.strip() for part in word.split(",") if part.strip()], "model_tags"),
    bare("-v --verbose --log-verbose", Setting("verbosity", 2**31 - 1)),
    valued("-lv --verbosity --log-verbosity", whole(0), "verbosity"),
    bare("-sp --special", Setting("special", True)),
    listed("-r --reverse-prompt", lambda word: [word], "antiprompt"),
    # Sampling.
    valued("--samplers", samplers, "sampling.samplers"),
    valued("-s --seed", lambda word: whole(-1, 2**32 - 1)(word) % 2**32, "sampling.seed"),
    bare("--ignore-eos", Setting("sampling.ignore_eos", True)),
    valued("--temperature --temp", number(0), "sampling.temp"),
    valued("--top-k", whole(), "sampling.top_k"),
    valued("--top-p", number(0, 1), "sampling.top_p"),
    valued("--min-p", number(0, 1), "sampling.min_p"),
    valued("--typical-p --typical", number(0, 1), "sampling.typ_p"),
    valued("--xtc-probability", number(0, 1), "sampling.xtc_probability"),
    valued("--xtc-threshold", number(0, 1), "sampling.xtc_threshold"),
    valued("--repeat-last-n", whole(0), "sampling.penalty_last_n"),
    valued("--repeat-penalty", number(0, above=True), "sampling.penalty_repeat"),
    valued("--presence-penalty", number(), "sampling.penalty_present"),
    valued("--frequency-penalty", number(), "sampling.penalty_freq"),
    valued("--dry-multiplier", number(0), "sampling.dry_multiplier"),
    valued("--dry-base", number(1), "sampling.dry_base"),
    valued("--dry-allowed-length", whole(0), "sampling.dry_allowed_length"),
    valued("--dry-penalty-last-n", whole(0), "sampling.dry_penalty_last_n"),
    valued("--adaptive-target", number(), "sampling.adaptive_target"),
    valued("--adaptive-decay", number(0, 1), "sampling.adaptive_decay"),
    valued("--dynatemp-range", number(0), "sampling.dynatemp_range"),
    valued("--dynatemp-exp", number(), "sampling.dynatemp_exponent"),
    valued("--mirostat", whole(0, 2), "sampling.mirostat"),
    valued("--mirostat-lr", number(), "sampling.mirostat_eta"),
    valued("--mirostat-ent", number(), "sampling.mirostat_tau"),
    bare("-bs --backend-sampling", Setting("sampling.backend_sampling", True)),
    valued("--grammar", lambda word: (_USER, word), "sampling.grammar"),
    valued("--grammar-file", lambda word: (_USER, contents(word)), "sampling.grammar"),
    valued("-j --json-schema", lambda word: (_OUTPUT, schema(word)), "sampling.grammar"),
    valued("-jf --json-schema-file", lambda word: (_OUTPUT, schema(contents(word))), "sampling.grammar"),
    # Templates and thinking.
    valued("--chat-template", text, "chat_template"),
    valued("--chat-template-file", contents, "chat_template"),
    Flag(("--chat-template-kwargs",), 1, templates),
    *pair("--skip-chat-parsing", "--no-skip-chat-parsing", "force_pure_content_parser"),
    *pair("--prefill-assistant", "--no-prefill-assistant", "prefill_assistant"),
    valued(
        "--reasoning-format",
        choice(
            members(
                "common_reasoning_format", "COMMON_REASONING_FORMAT_", "none", "auto", "deepseek", "deepseek-legacy"
            )
        ),
        "reasoning_format",
    ),
    Flag(("-rea", "--reasoning"), 1, reasoning),
    Flag(
        ("--reasoning-effort",),
        1,
        lambda word: [Setting("default_template_kwargs", {"reasoning_effort": json.dumps(word)}, "merge")],
    ),
    valued("--reasoning-budget", whole(-1), "sampling.reasoning_budget_tokens"),
    valued("--reasoning-budget-message", text, "sampling.reasoning_budget_message"),
    bare("--reasoning-preserve", *preserve("true")),
    bare("--no-reasoning-preserve", *preserve("false")),
    # Long contexts.
    valued(
        "--rope-scaling",
        choice(members("llama_rope_scaling_type", "LLAMA_ROPE_SCALING_TYPE_", "none", "linear", "yarn")),
        "rope_scaling_type",
    ),
    valued("--rope-scale", lambda word: 1 / number(0, above=True)(word), "rope_freq_scale"),
    valued("--rope-freq-base", number(0), "rope_freq_base"),
    valued("--rope-freq-scale", number(0, above=True), "rope_freq_scale"),
    valued("--yarn-orig-ctx", whole(0), "yarn_orig_ctx"),
    valued("--yarn-ext-factor", number(), "yarn_ext_factor"),
    valued("--yarn-attn-factor", number(), "yarn_attn_factor"),
    valued("--yarn-beta-slow", number(), "yarn_beta_slow"),
    valued("--yarn-beta-fast", number(), "yarn_beta_fast"),
    # Adapters, embeddings, pictures.
    listed("--lora", lambda word: [(existing(part), 1.0) for part in word.split(",")], "lora_adapters"),
    listed("--lora-scaled", scaled, "lora_adapters"),
    bare("--lora-init-without-apply", Setting("lora_init_without_apply", True)),
    valued(
        "--pooling",
        choice(members("llama_pooling_type", "LLAMA_POOLING_TYPE_", "none", "mean", "cls", "last", "rank")),
        "pooling_type",
    ),
    valued("--embd-normalize", whole(-1), "embd_normalize"),
    *pair("--mmproj-offload", "--no-mmproj-offload", "mmproj_use_gpu"),
    valued("--image-min-tokens", whole(-1), "image_min_tokens"),
    valued("--image-max-tokens", whole(-1), "image_max_tokens"),
    valued("--mtmd-batch-max-tokens", whole(1), "mtmd_batch_max_tokens"),
    # Speculation.
    listed("--spec-type", lambda word: [choice(_SPECULATIVE)(part) for part in word.split(",")], "speculative.types"),
    valued("--draft --draft-n --draft-max --spec-draft-n-max", whole(0), _DRAFT + "n_max"),
    valued("--draft-n-min --draft-min --spec-draft-n-min", whole(0), _DRAFT + "n_min"),
    valued("--draft-p-min --spec-draft-p-min", number(0, 1), _DRAFT + "p_min"),
    valued("--draft-p-split --spec-draft-p-split", number(0, 1), _DRAFT + "p_split"),
    valued("--spec-draft-sampling", choice({"greedy": False, "probabilistic": True}), _DRAFT + "probabilistic"),
    *pair("--spec-draft-backend-sampling", "--no-spec-draft-backend-sampling", _DRAFT + "backend_sampling"),
    valued("-td --threads-draft --spec-draft-threads", _threads, _DRAFT + "cpuparams.n_threads"),
    valued("-tbd --threads-batch-draft --spec-draft-threads-batch", _threads, _DRAFT + "cpuparams_batch.n_threads"),
    valued("-ngld --gpu-layers-draft --n-gpu-layers-draft --spec-draft-ngl", _layers, _DRAFT + "n_gpu_layers"),
    valued("-ctkd --cache-type-k-draft --spec-draft-type-k", _CACHE, _DRAFT + "cache_type_k"),
    valued("-ctvd --cache-type-v-draft --spec-draft-type-v", _CACHE, _DRAFT + "cache_type_v"),
    valued("-lcs --lookup-cache-static", existing, "speculative.ngram_cache.lookup_cache_static"),
    valued("-lcd --lookup-cache-dynamic", text, "speculative.ngram_cache.lookup_cache_dynamic"),
    valued("--spec-ngram-mod-n-min", whole(0, 1024), "speculative.ngram_mod.n_min"),
    valued("--spec-ngram-mod-n-max", whole(0, 1024), "speculative.ngram_mod.n_max"),
    valued("--spec-ngram-mod-n-match", whole(1, 1024), "speculative.ngram_mod.n_match"),
    *_ngram("ngram-simple"),
    *_ngram("ngram-map-k"),
    *_ngram("ngram-map-k4v"),
)

#: Flags of llama-server for which the library has no parameter, or that only its own program can honour.
SERVER_ONLY = names_in(
    """
    --override-kv --control-vector --control-vector-scaled --control-vector-layer-range --top-nsigma
    --top-n-sigma --dry-sequence-breaker --spm-infill --rpc --log-disable --log-file --log-colors --log-prefix
    --no-log-prefix --log-timestamps --no-log-timestamps --log-jsonl --no-log-jsonl --log-prompts-dir
    --sampler-seq --sampling-seq -l --logit-bias
    -C --cpu-mask -Cr --cpu-range -Cb --cpu-mask-batch -Crb --cpu-range-batch
    -mmdev --mmproj-device -devd --device-draft --spec-draft-device -cmoe --cpu-moe -ncmoe --n-cpu-moe -ncffn
    --n-cpu-ffn -fitt --fit-target -otd --override-tensor-draft --spec-draft-override-tensor -dio --direct-io
    -e --escape --no-escape --tools --mcp-servers-config --mcp-servers-json -ag --agent -no-ag --no-agent
    --path --props-file -p --prompt -f --file -bf --binary-file --list-devices -h --help
    --version
    """
)

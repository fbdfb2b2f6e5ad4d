"""Which files of a repository a checkpoint means. Pure: names in, names out.

The same rules read a registry's listing before a download and a folder on disk after it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from lemonade.errors import FileNotInRepository
from lemonade.model import Checkpoint

#: A shard's name: everything before the number, the number, how many there are, the extension.
SHARD = re.compile(r"^(?P<base>.+)[-._](?P<number>\d{5})-of-(?P<count>\d{5})(?P<end>\.[A-Za-z0-9]+)$")

#: A quantisation as file and folder names carry it, between delimiters.
_QUANT = re.compile(
    r"(?:^|[-._/])"
    r"((?:UD[-_])?"
    r"(?:IQ\d+(?:_(?:XXS|XS|NL|S|M|L))?"
    r"|T?Q\d+(?:_\d)?(?:_K)?(?:_(?:XXL|XL|M|S|L))?"
    r"|BF16|F16|F32"
    r"|MXFP\d+(?:_MOE)?))"
    r"(?=[-._/]|$)",
    re.IGNORECASE,
)

#: Offered first, in this order, because most people are best served by them.
_PREFERRED = ("Q4_K_M", "UD-Q4_K_XL", "Q8_0", "Q4_0")

#: Small files at the top that engines like to have beside the weights.
_EXTRAS = ("config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model")

_FILE_ENDINGS = (".gguf", ".bin", ".safetensors", ".pth", ".ckpt", ".onnx", ".ort", ".rai", ".json")
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".onnx", ".ort", ".npz")

_ACESTEP = ("acestep-5Hz-lm-4B-Q8_0.gguf", "Qwen3-Embedding-0.6B-BF16.gguf", "vae-BF16.gguf")
_THINKSOUND = ("dit-bf16", "t5-bf16", "metaclip-text-f32", "vae-f32", "t5-tokenizer", "clip-tokenizer")
_ONNX_CLASSIFIER = ("model.onnx", "tokenizer.json", "config.json")

#: Recipes whose bare repository is one GGUF file and what belongs to it; all others take a whole repository.
_LLAMACPP = "llamacpp"


class Selection(msgspec.Struct, frozen=True):
    """What one checkpoint of a model means.

    Attributes:
        primary: the file or folder that the engine is given; `""` is the repository's own folder, None means that the
            file which would tell it is not among the files.
        required: files without which the model is not complete.
        extras: files that are fetched as well when the repository has them.
    """

    primary: str | None
    required: tuple[str, ...]
    extras: tuple[str, ...] = ()


class Variant(msgspec.Struct, frozen=True):
    """One way in which a repository offers its model; the first of `files` is the one to open."""

    name: str
    files: tuple[str, ...]
    sharded: bool


def select(files: Sequence[str], checkpoint: Checkpoint, *, role: str, recipe: str) -> list[str]:
    """The files to fetch, in the order of their names.

    Raises:
        FileNotInRepository: the repository has no such file, several that fit, or a shard is missing.
    """
    chosen = choose(files, checkpoint, role=role, recipe=recipe)
    return sorted({*chosen.required, *chosen.extras})


def choose(files: Sequence[str], checkpoint: Checkpoint, *, role: str, recipe: str) -> Selection:
    """As `select`, and which of the files the engine is given.

    Raises:
        FileNotInRepository: as `select`.
    """
    names = sorted(files)
    if role != "main":
        chosen = _one_file(names, checkpoint, role)
    elif recipe == "moonshine" and checkpoint.variant:
        chosen = _folder(names, checkpoint)
    elif recipe == "thinksound" and not checkpoint.variant:
        chosen = _thinksound(names)
    elif not checkpoint.variant and recipe != _LLAMACPP:
        chosen = _whole(names, recipe)
    elif checkpoint.variant.lower().endswith(_FILE_ENDINGS):
        chosen = _with_companions(names, _one_file(names, checkpoint, role), recipe)
    elif recipe == _LLAMACPP:
        chosen = _gguf(names, checkpoint)
    else:
        chosen = _folder(names, checkpoint)
    _check_shards(chosen.required, names, checkpoint)
    if checkpoint.variant and role == "main":
        extras = (*chosen.extras, *(name for name in _EXTRAS if name in names and name not in chosen.required))
        return msgspec.structs.replace(chosen, extras=extras)
    return chosen


def variants(files: Sequence[str]) -> list[Variant]:
    """The variants of a GGUF repository, the preferred ones first."""
    main = [name for name in sorted(files) if name.lower().endswith(".gguf") and not is_companion(name)]
    found: list[Variant] = []
    folders: dict[str, list[str]] = {}
    series: dict[str, list[str]] = {}
    for name in main:
        top, slash, _ = name.partition("/")
        if slash:
            folders.setdefault(top, []).append(name)
        else:
            shard = SHARD.match(name)
            series.setdefault(f"{shard['base']}-of-{shard['count']}" if shard else name, []).append(name)
    for folder, names in folders.items():
        found.append(Variant(quantisation(folder) or folder, tuple(names), True))
    by_token: dict[str, list[list[str]]] = {}
    for names in series.values():
        by_token.setdefault(quantisation(names[0]) or "", []).append(names)
    unnamed = by_token.pop("", [])
    for token, groups in by_token.items():
        for names in groups:
            name = token if len(groups) == 1 else names[0].removesuffix(".gguf")
            found.append(Variant(name, tuple(names), len(names) > 1))
    if not found:
        found = [Variant(names[0], tuple(names), len(names) > 1) for names in unnamed]
    return sorted(found, key=_preference)


def quantisation(name: str) -> str | None:
    """The quantisation that a file or folder name carries, in capitals."""
    tokens = _QUANT.findall(name.removesuffix(".gguf"))
    return tokens[-1].upper() if tokens else None


def is_companion(name: str) -> bool:
    """Whether a file goes with a model (a projector, a draft) and is never the model itself."""
    base = name.rpartition("/")[2].lower()
    return "mmproj" in name.lower() or base.startswith(("mtp-", "dflash-")) or base == "dflash.gguf"


def _preference(variant: Variant) -> tuple[int, str]:
    token = quantisation(variant.name) or variant.name
    return (_PREFERRED.index(token) if token in _PREFERRED else len(_PREFERRED), variant.name)


def _one_file(names: list[str], checkpoint: Checkpoint, role: str) -> Selection:
    wanted = checkpoint.variant
    if not wanted:
        raise FileNotInRepository(
            f"The checkpoint '{checkpoint}' for '{role}' must name a file: {checkpoint.repository}:FILE."
        )
    if wanted not in names:
        # A bare name may stand for the one file in a folder that has it.
        inside = [name for name in names if name.endswith(f"/{wanted}")]
        if len(inside) != 1:
            raise _missing(names, checkpoint)
        wanted = inside[0]
    shard = SHARD.match(wanted)
    if shard is None:
        return Selection(wanted, (wanted,))
    series = _series(names, shard)
    return Selection(series[0], tuple(series))


def _gguf(names: list[str], checkpoint: Checkpoint) -> Selection:
    models = [name for name in names if name.lower().endswith(".gguf")]
    main = [name for name in models if not is_companion(name)]
    variant = checkpoint.variant
    if variant == "*":
        if not models:
            raise _missing(names, checkpoint)
        return Selection((main or models)[0], tuple(models))
    if not variant:
        if not main:
            raise _missing(names, checkpoint)
        return Selection(main[0], tuple(names))
    chosen = _variant_files(names, main, checkpoint)
    return Selection(chosen[0], tuple(chosen))


def _variant_files(names: list[str], main: list[str], checkpoint: Checkpoint) -> list[str]:
    wanted = checkpoint.variant.lower()
    matches = [variant for variant in variants(names) if variant.name.lower() == wanted]
    if len(matches) == 1:
        return list(matches[0].files)
    if matches:
        raise _ambiguous(checkpoint, [variant.files[0] for variant in matches])
    endings = [name for name in main if name.lower().endswith(f"{wanted}.gguf")]
    if len(endings) == 1:
        return endings
    if endings:
        raise _ambiguous(checkpoint, endings)
    inside = [name for name in main if name.lower().startswith(f"{wanted}/")]
    if not inside:
        tops = {top for name in main if (top := name.partition("/")[0].lower()).endswith((f"-{wanted}", f"_{wanted}"))}
        inside = [name for name in main if "/" in name and name.partition("/")[0].lower() in tops]
    if not inside:
        raise _missing(names, checkpoint)
    return inside


def _folder(names: list[str], checkpoint: Checkpoint) -> Selection:
    folder = checkpoint.variant.strip("/")
    if folder == "*":
        return Selection("", tuple(names))
    inside = [name for name in names if name.startswith(f"{folder}/")]
    if not inside:
        raise _missing(names, checkpoint)
    return Selection(folder, tuple(inside))


def _whole(names: list[str], recipe: str) -> Selection:
    primary: str | None = ""
    if recipe == "kokoro":
        # Without an index the engine finds the network and the voices itself.
        whole = "" if any(name.endswith(".onnx") for name in names) and any(map(_is_voice, names)) else None
        primary = next((name for name in names if name.rpartition("/")[2] == "index.json"), whole)
    elif recipe == "ryzenai-llm":
        primary = next((_parent(name) for name in names if name.rpartition("/")[2] == "genai_config.json"), None)
    elif recipe == "onnxruntime":
        primary = _classifier_folder(names)
    elif not recipe.startswith("collection.") and not any(name.endswith(_WEIGHTS) for name in names):
        # A snapshot with a configuration only is what other tools leave when they look at a repository.
        primary = None
    return Selection(primary, tuple(names))


def _is_voice(name: str) -> bool:
    """Whether a file holds voices of Kokoro: one each in a folder, or all in one."""
    folder, _, file = name.rpartition("/")
    return file.endswith((".bin", ".npz")) and (file.startswith("voices") or folder.rpartition("/")[2] == "voices")


def _classifier_folder(names: list[str]) -> str | None:
    folders = {_parent(name) for name in names}
    present = set(names)
    whole = [
        folder
        for folder in sorted(folders)
        if all((f"{folder}/{needed}" if folder else needed) in present for needed in _ONNX_CLASSIFIER)
    ]
    if len(whole) == 1:
        return whole[0]
    return "" if whole else None


def _thinksound(names: list[str]) -> Selection:
    wanted = {f"{stem}.gguf" for stem in _THINKSOUND}
    chosen = tuple(name for name in names if name.rpartition("/")[2] in wanted)
    return Selection("", chosen) if chosen else _whole(names, "thinksound")


def _with_companions(names: list[str], chosen: Selection, recipe: str) -> Selection:
    companions: list[str] = []
    if recipe == "openmoss" and chosen.primary:
        companions = [f"{chosen.primary.rpartition('.')[0]}.extras.gguf"]
    elif recipe == "acestep":
        companions = list(_ACESTEP)
    elif recipe == "kokoro":
        companions = [name for name in names if _is_voice(name)]
    present = tuple(name for name in companions if name in names and name not in chosen.required)
    return msgspec.structs.replace(chosen, required=(*chosen.required, *present))


def _series(names: list[str], shard: re.Match[str]) -> list[str]:
    return [
        name
        for name in names
        if (other := SHARD.match(name)) and (other["base"], other["count"]) == (shard["base"], shard["count"])
    ]


def _check_shards(required: Sequence[str], names: list[str], checkpoint: Checkpoint) -> None:
    seen: dict[tuple[str, str], set[int]] = {}
    for name in required:
        if shard := SHARD.match(name):
            seen.setdefault((shard["base"] + shard["end"], shard["count"]), set()).add(int(shard["number"]))
    for (base, count), numbers in seen.items():
        missing = set(range(1, int(count) + 1)) - numbers
        if missing:
            raise FileNotInRepository(
                f"'{checkpoint.repository}' has only {len(numbers)} of the {int(count)} parts of '{base}'; "
                f"part {min(missing)} is missing."
            )


def _parent(name: str) -> str:
    return name.rpartition("/")[0]


def _missing(names: list[str], checkpoint: Checkpoint) -> FileNotInRepository:
    offered = [variant.name for variant in variants(names)] or [name for name in names if name.endswith(_WEIGHTS)]
    message = f"'{checkpoint.repository}' has no '{checkpoint.variant}'."
    if not checkpoint.variant:
        message = f"'{checkpoint.repository}' has no GGUF file."
    if offered:
        more = f" and {len(offered) - 12} more" if len(offered) > 12 else ""
        message += f" It offers: {', '.join(offered[:12])}{more}."
    return FileNotInRepository(message)


def _ambiguous(checkpoint: Checkpoint, found: Sequence[str]) -> FileNotInRepository:
    return FileNotInRepository(
        f"'{checkpoint.variant}' means several files of '{checkpoint.repository}'; name one: {', '.join(found[:12])}."
    )

"""Models that other programs have downloaded: Ollama, LM Studio, and whoever uses the Hugging Face cache."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from lemonade.errors import InvalidArgument
from lemonade.hub.gguf import has_magic
from lemonade.hub.layout import check_repository
from lemonade.hub.selection import SHARD, is_companion
from lemonade.paths import models_directory

_OLLAMA_MODEL = "application/vnd.ollama.image.model"
_OLLAMA_PROJECTOR = "application/vnd.ollama.image.projector"


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """One model of another program.

    Attributes:
        tool: `ollama`, `lm-studio` or `huggingface`.
        name: a name for it here, without `user.`.
        checkpoints: where its files are: absolute paths, or for the Hugging Face cache the repository and file.
        size: bytes of the main file, or of its first shard.
    """

    tool: str
    name: str
    checkpoints: dict[str, str]
    size: int


def find(env: Mapping[str, str] = os.environ, home: Path | None = None) -> list[Found]:
    """Every GGUF model in the folders of other programs, in the order of tools and names."""
    home = home or Path.home()
    found = [*_ollama(env, home), *_lm_studio(home), *_huggingface(models_directory(env))]
    return sorted(found, key=lambda each: (each.tool, each.name.lower()))


def _ollama(env: Mapping[str, str], home: Path) -> Iterator[Found]:
    places = [Path(env["OLLAMA_MODELS"])] if env.get("OLLAMA_MODELS") else []
    places += [home / ".ollama" / "models", Path("/usr/share/ollama/.ollama/models")]
    for models in places:
        for manifest in sorted(_files(models / "manifests")):
            roles = _ollama_files(models, manifest)
            main = roles.get("main")
            if main is not None and has_magic(main):
                model, tag = manifest.parent.name, manifest.name
                checkpoints = {role: str(path) for role, path in roles.items()}
                name = model if tag == "latest" else f"{model}-{tag}"
                yield Found(tool="ollama", name=name, checkpoints=checkpoints, size=main.stat().st_size)


def _ollama_files(models: Path, manifest: Path) -> dict[str, Path]:
    try:
        layers = json.loads(manifest.read_bytes())["layers"]
        kinds = {layer["mediaType"]: layer["digest"].replace(":", "-") for layer in layers}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    named = {"main": kinds.get(_OLLAMA_MODEL), "mmproj": kinds.get(_OLLAMA_PROJECTOR)}
    return {role: path for role, name in named.items() if name and (path := models / "blobs" / name).is_file()}


def _lm_studio(home: Path) -> Iterator[Found]:
    for folder in (home / ".lmstudio" / "models", home / ".cache" / "lm-studio" / "models"):
        for path, projector in _with_projectors(folder):
            checkpoints = {"main": str(path)} | ({"mmproj": str(projector)} if projector else {})
            yield Found(tool="lm-studio", name=_name(path), checkpoints=checkpoints, size=path.stat().st_size)


def _huggingface(models: Path) -> Iterator[Found]:
    for refs in sorted(models.glob("models--*--*/refs/main")):
        repository = "/".join(refs.parents[1].name.split("--")[1:])
        try:
            # Weights from wheels, which are ours, lie there too.
            check_repository("huggingface", repository)
            snapshot = refs.parents[1] / "snapshots" / refs.read_text(errors="replace").strip()
        except (OSError, InvalidArgument):
            continue
        for path, projector in _with_projectors(snapshot):
            checkpoints = {"main": f"{repository}:{path.relative_to(snapshot).as_posix()}"}
            if projector:
                checkpoints["mmproj"] = f"{repository}:{projector.relative_to(snapshot).as_posix()}"
            yield Found(tool="huggingface", name=_name(path), checkpoints=checkpoints, size=path.stat().st_size)


def _with_projectors(folder: Path) -> Iterator[tuple[Path, Path | None]]:
    """The GGUF models below a folder, of sharded ones the first part, each with the projector beside it."""
    files = [path for path in sorted(_files(folder)) if path.suffix.lower() == ".gguf" and has_magic(path)]
    projectors = {path.parent: path for path in reversed(files) if "mmproj" in path.name.lower()}
    for path in files:
        shard = SHARD.match(path.name)
        if not is_companion(path.name) and (shard is None or int(shard["number"]) == 1):
            yield path, projectors.get(path.parent)


def _files(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder):
        for name in names:
            yield Path(parent, name)


def _name(path: Path) -> str:
    shard = SHARD.match(path.name)
    return shard["base"] if shard else path.stem

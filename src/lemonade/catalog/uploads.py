"""Files that somebody put into the model cache by hand, to be registered as they lie there."""

from __future__ import annotations

from pathlib import Path

from lemonade.errors import InvalidArgument


def find_upload(models: Path, bare: str, *, recipe: str, projector: bool) -> dict[str, str]:
    """The checkpoints of what lies in the model's own folder, relative to the cache.

    Args:
        models: the model cache.
        bare: the model's name, without `user.`.
        projector: whether a vision projector is wanted as well.

    Raises:
        InvalidArgument: there is no such folder, or nothing in it that the recipe can use.
    """
    folder = models / f"models--{bare.replace('/', '-')}"
    if not folder.is_dir():
        raise InvalidArgument(
            f"There is no folder {folder}. Put the model's files there first, then import it.", param="local_import"
        )
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    main = _main(folder, files, recipe)
    if main is None:
        raise InvalidArgument(f"{folder} holds nothing that {recipe} can run.", param="local_import")
    found = {"main": main.relative_to(models).as_posix()}
    if projector:
        beside = next((path for path in files if _is_projector(path)), None)
        if beside is None:
            raise InvalidArgument(f"{folder} holds no mmproj file for pictures.", param="local_import")
        found["mmproj"] = beside.relative_to(models).as_posix()
    return found


def _main(folder: Path, files: list[Path], recipe: str) -> Path | None:
    if recipe == "llamacpp":
        return next((path for path in files if path.suffix.lower() == ".gguf" and not _is_projector(path)), None)
    if recipe == "ryzenai-llm":
        return next((path.parent for path in files if path.name == "genai_config.json"), None)
    if recipe == "whispercpp":
        return next((path for path in files if path.suffix.lower() == ".bin"), None)
    if recipe == "fasterwhisper":
        return next((path.parent for path in files if path.name == "model.bin"), None)
    if recipe == "onnxruntime":
        return next((path.parent for path in files if path.suffix.lower() == ".onnx"), None)
    return folder if files else None


def _is_projector(path: Path) -> bool:
    return "mmproj" in path.name.lower()

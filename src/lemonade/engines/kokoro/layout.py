"""Where a Kokoro model's files lie. Three layouts are in use on the hubs:

index.json                  names the other two: `{"model": "kokoro.onnx", "voices": "voices.bin"}`
kokoro-v1.0.onnx            beside all voices in one archive of NumPy's, `voices-v1.0.bin` or `.npz`
onnx/model.onnx             with one file of raw floats per voice, `voices/af_heart.bin`
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path

import msgspec

from lemonade.errors import ModelLoadError

#: Exports of one repository, the one that is taken when nobody chose: full precision first, for it sounds best.
_PREFERRED = ("model.onnx", "kokoro-v1.0.onnx", "kokoro.onnx")
_INDEX = "index.json"


@dataclass(frozen=True, slots=True)
class Layout:
    """A model that is whole.

    Attributes:
        voices: an archive of all voices, or a folder with one file each.
        vocabulary: a JSON file that says which phoneme has which number, or None for the usual one.
    """

    model: Path
    voices: Path
    vocabulary: Path | None = None


class _Index(msgspec.Struct):
    model: str
    voices: str


def find(main: Path) -> Layout:
    """The files of a model.

    Args:
        main: `index.json`, the `.onnx` file, or the folder that holds them.

    Raises:
        ModelLoadError: something is missing.
    """
    if main.is_dir() and (main / _INDEX).is_file():
        main = main / _INDEX
    if main.name == _INDEX:
        return _indexed(main)
    model = _choose(main) if main.is_dir() else main
    for folder in (model.parent, model.parent.parent):
        if voices := _voices_in(folder):
            return Layout(model, voices, _vocabulary(folder))
    raise ModelLoadError(f"there are no voices beside {model.name}: neither voices*.bin or .npz, nor a folder voices")


def voice_names(voices: Path) -> list[str]:
    """The names of the voices, in order. Reads no weights.

    Raises:
        ModelLoadError: it is no archive of voices.
    """
    if voices.is_dir():
        names = [file.stem for file in voices.glob("*.bin")]
    else:
        try:
            with zipfile.ZipFile(voices) as archive:
                names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
        except (OSError, zipfile.BadZipFile) as error:
            raise ModelLoadError(f"{voices.name} is no archive of voices: {error}") from error
    return sorted(names)


def _indexed(index: Path) -> Layout:
    try:
        said = msgspec.json.decode(index.read_bytes(), type=_Index)
    except (OSError, msgspec.MsgspecError) as error:
        raise ModelLoadError(f"{index.name} does not name a model and its voices: {error}") from error
    folder = index.parent
    found = []
    for name in (said.model, said.voices):
        path = folder / name
        # A repository is not to point at other files of the disk.
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise ModelLoadError(f"{index.name} names {name!r}, which is not in its folder")
        if not path.exists():
            raise ModelLoadError(f"{index.name} names {name}, which is not there")
        found.append(path)
    return Layout(found[0], found[1], _vocabulary(folder))


def _choose(folder: Path) -> Path:
    models = sorted([*folder.glob("*.onnx"), *folder.glob("onnx/*.onnx")])
    if not models:
        raise ModelLoadError(f"there is no .onnx file in {folder.name}")
    for name in _PREFERRED:
        for model in models:
            if model.name == name:
                return model
    return models[0]


def _voices_in(folder: Path) -> Path | None:
    files = sorted([*folder.glob("voices*.npz"), *folder.glob("voices*.bin")])
    if files:
        return files[-1]
    inside = folder / "voices"
    return inside if any(inside.glob("*.bin")) else None


def _vocabulary(folder: Path) -> Path | None:
    for name in ("config.json", "tokenizer.json"):
        if (folder / name).is_file():
            return folder / name
    return None

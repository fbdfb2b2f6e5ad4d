"""A model that makes pictures, small enough for tests, that stable-diffusion.cpp runs as any other.

It has the architecture of FLUX.1, of which the engine takes width, depth and head size from the tensors, with random
numbers. Its autoencoder is set by hand: it averages squares of 8x8 pixels, and paints squares. So its pictures mean
nothing, but depend on the prompt and the seed, and what is kept of a picture that is edited can be seen.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.weights import cache

#: Changes with what is written below.
VERSION = 1

#: Width of the transformer and of its one head. Everything else follows from it, or from FLUX.1.
HIDDEN = 128
CONTEXT = 4096
POOLED = 768
#: Of 16 channels of the autoencoder in squares of 2x2.
LATENT = 64
CHANNELS = 16
WIDTH = 64

Tensors = dict[str, Any]
Paint = Callable[[Any], None]


@dataclass(frozen=True)
class TinyDiffusion:
    """The files of the model.

    Attributes:
        transformer: paints; 3 MB.
        autoencoder: in the layout of TAESD; 5 MB.
        encoder: of texts, in the shape of CLIP-L; 76 MB, as the engine fixes its shape. Its large tensors share one
            pool of random numbers in the file.
        lora: changes the transformer.
    """

    transformer: Path
    autoencoder: Path
    encoder: Path
    lora: Path

    @property
    def checkpoints(self) -> dict[str, str]:
        """As a model is registered with them."""
        return {"main": str(self.transformer), "taesd": str(self.autoencoder), "clip_l": str(self.encoder)}


def tiny_diffusion() -> TinyDiffusion:
    """The files, made once per machine."""
    folder = cache() / f"tiny-diffusion-{VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    made = TinyDiffusion(
        *(folder / f"{name}.safetensors" for name in ("transformer", "autoencoder", "encoder", "lora"))
    )
    numbers = np.random.default_rng(0)
    if not made.encoder.exists():
        _write(made.transformer, transformer(numbers))
        _write(made.autoencoder, autoencoder())
        _write(made.lora, lora(numbers))
        _write(made.encoder, *encoder(numbers))
    return made


def quantised(weights: TinyDiffusion) -> Path:
    """The transformer as a GGUF file with 8 bits a weight."""
    import gguf

    path = weights.transformer.with_suffix(".gguf")
    if not path.exists():
        part = path.with_suffix(f".{np.random.default_rng().integers(1 << 30)}")
        writer = gguf.GGUFWriter(part, "flux")
        for name, tensor in transformer(np.random.default_rng(0)).items():
            if tensor.ndim == 2:
                packed = gguf.quants.quantize(tensor.astype(np.float32), gguf.GGMLQuantizationType.Q8_0)
                writer.add_tensor(name, packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
            else:
                writer.add_tensor(name, tensor)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        part.replace(path)
    return path


def transformer(numbers: np.random.Generator) -> Tensors:
    """One double and one single block."""
    tensors: Tensors = {}

    def linear(name: str, out: int, inside: int, gain: float = 1.0) -> None:
        weight = numbers.standard_normal((out, inside)) * gain / np.sqrt(inside)
        tensors[f"{name}.weight"] = weight.astype(np.float16)
        tensors[f"{name}.bias"] = np.zeros(out, np.float32)

    def norms(name: str) -> None:
        for part in ("query", "key"):
            tensors[f"{name}.{part}_norm.scale"] = np.ones(HIDDEN, np.float32)

    linear("img_in", HIDDEN, LATENT)
    linear("txt_in", HIDDEN, CONTEXT)
    linear("time_in.in_layer", HIDDEN, 256)
    linear("time_in.out_layer", HIDDEN, HIDDEN)
    # The prompt has to outweigh the step.
    linear("vector_in.in_layer", HIDDEN, POOLED, 4.0)
    linear("vector_in.out_layer", HIDDEN, HIDDEN, 4.0)
    for stream in ("img", "txt"):
        block = f"double_blocks.0.{stream}_"
        linear(f"{block}mod.lin", 6 * HIDDEN, HIDDEN, 0.5)
        linear(f"{block}attn.qkv", 3 * HIDDEN, HIDDEN)
        linear(f"{block}attn.proj", HIDDEN, HIDDEN)
        linear(f"{block}mlp.0", 4 * HIDDEN, HIDDEN)
        linear(f"{block}mlp.2", HIDDEN, 4 * HIDDEN)
        norms(f"{block}attn.norm")
    linear("single_blocks.0.linear1", 7 * HIDDEN, HIDDEN)
    linear("single_blocks.0.linear2", HIDDEN, 5 * HIDDEN)
    linear("single_blocks.0.modulation.lin", 3 * HIDDEN, HIDDEN, 0.5)
    norms("single_blocks.0.norm")
    linear("final_layer.linear", LATENT, HIDDEN, 0.1)
    linear("final_layer.adaLN_modulation.1", 2 * HIDDEN, HIDDEN, 2.0)
    return {f"model.diffusion_model.{name}": tensor for name, tensor in tensors.items()}


def lora(numbers: np.random.Generator, rank: int = 4) -> Tensors:
    """Of the transformer's last layer but one, strong enough to be seen."""
    name = "lora_unet_single_blocks_0_linear2"
    down, up = numbers.standard_normal((rank, 5 * HIDDEN)), numbers.standard_normal((HIDDEN, rank))
    return {
        f"{name}.lora_down.weight": down.astype(np.float16),
        f"{name}.lora_up.weight": up.astype(np.float16),
        f"{name}.alpha": np.array([rank], np.float32),
    }


def autoencoder() -> Tensors:
    """Squares of 8x8 pixels to three of the channels and back."""
    tensors: Tensors = {}

    def convolution(name: str, out: int, inside: int, paint: Paint | None = None, *, bias: bool = True) -> None:
        weight = np.zeros((out, inside, 3, 3), np.float16)
        if paint is not None:
            paint(weight)
        tensors[f"{name}.weight"] = weight
        if bias:
            tensors[f"{name}.bias"] = np.zeros(out, np.float32)

    def same(gain: float) -> Paint:
        def paint(weight: Any) -> None:
            for colour in range(3):
                weight[colour, colour, 1, 1] = gain

        return paint

    def mean(weight: Any) -> None:
        # With a stride of 2, a square of 2x2.
        for colour in range(3):
            weight[colour, colour, 1:3, 1:3] = 0.25

    def block(name: str) -> None:
        # A residual block whose branch is silent.
        for part in (0, 2, 4):
            convolution(f"{name}.conv.{part}", WIDTH, WIDTH)

    layers = "encoder.layers."
    convolution(f"{layers}0", WIDTH, 3, same(1.0))
    block(f"{layers}1")
    at = 2
    for _ in range(3):
        convolution(f"{layers}{at}", WIDTH, WIDTH, mean, bias=False)
        for number in range(3):
            block(f"{layers}{at + 1 + number}")
        at += 4
    convolution(f"{layers}{at}", CHANNELS, WIDTH, same(2.0))
    tensors[f"{layers}{at}.bias"][:3] = -1
    layers = "decoder.layers."
    convolution(f"{layers}0", WIDTH, CHANNELS, same(0.5))
    tensors[f"{layers}0.bias"][:3] = 0.5
    at = 2
    for _ in range(3):
        for number in range(3):
            block(f"{layers}{at + number}")
        convolution(f"{layers}{at + 4}", WIDTH, WIDTH, same(1.0), bias=False)
        at += 5
    block(f"{layers}{at}")
    convolution(f"{layers}{at + 1}", 3, WIDTH, same(1.0))
    return tensors


def encoder(numbers: np.random.Generator) -> tuple[Tensors, Any, dict[str, tuple[int, ...]]]:
    """Tensors; the pool; the shapes of those that lie in the pool."""
    small: Tensors = {}
    large: dict[str, tuple[int, ...]] = {}

    def linear(name: str, out: int, inside: int) -> None:
        large[f"text_model.{name}.weight"] = (out, inside)
        small[f"text_model.{name}.bias"] = np.zeros(out, np.float32)

    def norm(name: str) -> None:
        small[f"text_model.{name}.weight"] = np.ones(POOLED, np.float32)
        small[f"text_model.{name}.bias"] = np.zeros(POOLED, np.float32)

    vocabulary = 49408
    large["text_model.embeddings.token_embedding.weight"] = (vocabulary, POOLED)
    large["text_model.embeddings.position_embedding.weight"] = (77, POOLED)
    for layer in range(12):
        block = f"encoder.layers.{layer}."
        for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
            linear(f"{block}self_attn.{part}", POOLED, POOLED)
        linear(f"{block}mlp.fc1", 4 * POOLED, POOLED)
        linear(f"{block}mlp.fc2", POOLED, 4 * POOLED)
        norm(f"{block}layer_norm1")
        norm(f"{block}layer_norm2")
    norm("final_layer_norm")
    pool = (numbers.standard_normal(vocabulary * POOLED, dtype=np.float32) * 0.03).astype(np.float16)
    return small, pool, large


def _write(path: Path, tensors: Tensors, pool: Any = None, pooled: dict[str, tuple[int, ...]] | None = None) -> None:
    """A safetensors file, which has its name when it is whole."""
    head: dict[str, Any] = {}
    pieces, at = [], 0
    kinds = {np.dtype("float16"): "F16", np.dtype("float32"): "F32"}
    for name, tensor in tensors.items():
        piece = np.ascontiguousarray(tensor).tobytes()
        head[name] = {"dtype": kinds[tensor.dtype], "shape": tensor.shape, "data_offsets": [at, at + len(piece)]}
        pieces.append(piece)
        at += len(piece)
    for name, shape in (pooled or {}).items():
        head[name] = {"dtype": "F16", "shape": shape, "data_offsets": [at, at + 2 * int(np.prod(shape))]}
    if pool is not None:
        pieces.append(pool.tobytes())
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    part = path.with_name(f"{path.name}.{np.random.default_rng().integers(1 << 30)}")
    part.write_bytes(b"".join([struct.pack("<Q", len(text)), text, *pieces]))
    part.replace(path)

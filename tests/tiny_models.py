"""Models of a few hundred kilobytes with random weights, for llama.cpp itself to run.

They say nothing sensible, but everything around that is real: the tokenizer, a picture's way through a vision encoder,
speculation. Made once, into the folder of the test weights; the same bytes every time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.weights import cache

if TYPE_CHECKING:
    from gguf import GGUFWriter

#: Grows when the files below change, so that old ones are not taken for them.
VERSION = 1

WIDTH = 64
VISION_WIDTH = 32
#: Pixels of a side of the square that becomes one token.
PATCH = 16
#: Bands of a spectrogram, as Whisper's encoders take it.
MEL_BINS = 80
#: What the model can say: random weights choose among these, and never end on their own.
WORDS = [f"\u2581{first}{second}" for first in "bdfgklmnprst" for second in ("a", "e", "i", "o", "u", "ai", "ou")]
CAPITALS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
DECISION_TEMPLATE = "{{ instructions }}\n{% for option in options %}{{ option.key }}\n{% endfor %}{{ state }}\n"
TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {% if message.content is string %}{{ message.content }}"
    "{% else %}{% for part in message.content %}{{ part.text }}{% endfor %}{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


def text_model() -> Path:
    """A chat model of the architecture `llama`: two layers, a vocabulary of bytes and some syllables."""
    return _made("tiny-text", _write_text_model)


def predicting_model() -> Path:
    """A chat model of the architecture `glm4moe` whose last layer predicts further tokens (MTP)."""
    return _made("tiny-mtp", _write_predicting_model)


def decision_model() -> Path:
    """As `text_model`, made to choose among options by their letters, in the way that is called `openjev`."""
    return _made("tiny-decision", _write_decision_model)


def projector() -> Path:
    """A vision encoder of the kind `pixtral` for `text_model`: a larger picture gives more tokens."""
    return _made("tiny-mmproj", _write_projector)


def ear() -> Path:
    """An audio encoder of the kind `qwen2a` for `text_model`: half a minute of sound is 750 tokens."""
    return _made("tiny-ear", _write_ear)


def _made(name: str, write: Callable[[Path], None]) -> Path:
    cache().mkdir(parents=True, exist_ok=True)
    target = cache() / f"{name}-{VERSION}.gguf"
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=cache(), prefix="making-") as scratch:
            part = Path(scratch) / "part"
            write(part)
            part.replace(target)
    return target


def _write_text_model(path: Path) -> None:
    from gguf import GGUFWriter

    writer = GGUFWriter(path, "llama")
    random = _random(0)
    _write_text(writer, random, blocks=2)
    for block in range(2):
        _write_block(writer, f"blk.{block}", random, WIDTH, ("attn_norm", "ffn_norm", "attn_output"))
    _finish(writer)


def _write_decision_model(path: Path) -> None:
    from gguf import GGUFWriter

    writer = GGUFWriter(path, "llama")
    random = _random(4)
    _write_text(writer, random, blocks=2, letters=True)
    writer.add_string("llama.decision.type", "openjev")
    writer.add_string("tokenizer.chat_template.systemone", DECISION_TEMPLATE)
    for block in range(2):
        _write_block(writer, f"blk.{block}", random, WIDTH, ("attn_norm", "ffn_norm", "attn_output"))
    _finish(writer)


def _write_predicting_model(path: Path) -> None:
    import numpy as np
    from gguf import GGUFWriter

    writer = GGUFWriter(path, "glm4moe")
    random = _random(2)
    _write_text(writer, random, blocks=3)
    # Only the layer that predicts has experts, because it must.
    writer.add_leading_dense_block_count(2)
    writer.add_expert_count(2)
    writer.add_expert_used_count(1)
    writer.add_expert_shared_count(1)
    writer.add_expert_feed_forward_length(WIDTH)
    writer.add_nextn_predict_layers(1)
    for block in range(3):
        _write_block(
            writer, f"blk.{block}", random, WIDTH, ("attn_norm", "post_attention_norm", "attn_output"), block < 2
        )
    writer.add_tensor("blk.2.ffn_gate_inp.weight", random(2, WIDTH))
    writer.add_tensor("blk.2.exp_probs_b.bias", np.zeros(2, np.float32))
    for name in ("gate", "up", "down"):
        writer.add_tensor(f"blk.2.ffn_{name}_exps.weight", 0.2 * random(2, WIDTH, WIDTH))
        writer.add_tensor(f"blk.2.ffn_{name}_shexp.weight", 0.2 * random(WIDTH, WIDTH))
    writer.add_tensor("blk.2.nextn.eh_proj.weight", 0.2 * random(WIDTH, 2 * WIDTH))
    for name in ("enorm", "hnorm", "shared_head_norm"):
        writer.add_tensor(f"blk.2.nextn.{name}.weight", np.ones(WIDTH, np.float32))
    _finish(writer)


def _write_text(writer: GGUFWriter, random: Any, *, blocks: int, letters: bool = False) -> None:
    """What is the same in all text models: sizes, vocabulary, first and last layer.

    Args:
        letters: with a token for each capital letter, which can be said, too.
    """
    import numpy as np
    from gguf import TokenType

    control = ["<unk>", "<s>", "</s>"]
    kinds = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL]
    spare = [f"<0x{byte:02X}>" for byte in range(256)]
    tokens = [*control, *spare, "\u2581", *"abcdefghijklmnopqrstuvwxyz", *(CAPITALS if letters else ()), *WORDS]
    kinds += [TokenType.BYTE] * 256 + [TokenType.NORMAL] * (len(tokens) - 259)

    writer.add_name("Tiny")
    writer.add_context_length(8192)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(blocks)
    writer.add_feed_forward_length(2 * WIDTH)
    writer.add_head_count(4)
    writer.add_head_count_kv(4)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // 4)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([-float(number) for number in range(len(tokens))])
    writer.add_token_types([int(kind) for kind in kinds])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    if letters:
        writer.add_add_space_prefix(False)
    writer.add_chat_template(TEMPLATE)

    output = random(len(tokens), WIDTH)
    output[: 260 if letters else len(tokens) - len(WORDS)] = 0
    writer.add_tensor("token_embd.weight", random(len(tokens), WIDTH))
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    writer.add_tensor("output.weight", output)


def _write_projector(path: Path) -> None:
    import numpy as np
    from gguf import GGUFWriter

    writer = GGUFWriter(path, "clip")
    writer.add_string("clip.projector_type", "pixtral")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_bool("clip.use_silu", True)
    numbers = {
        "image_size": 512,
        "patch_size": PATCH,
        "embedding_length": VISION_WIDTH,
        "feed_forward_length": 2 * VISION_WIDTH,
        "projection_dim": WIDTH,
        "block_count": 1,
        "attention.head_count": 2,
    }
    for key, value in numbers.items():
        writer.add_uint32(f"clip.vision.{key}", value)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    writer.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    writer.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])

    random = _random(1)
    writer.add_tensor("v.patch_embd.weight", 0.1 * random(VISION_WIDTH, 3, PATCH, PATCH))
    writer.add_tensor("v.pre_ln.weight", np.ones(VISION_WIDTH, np.float32))
    writer.add_tensor("v.token_embd.img_break", random(WIDTH))
    _write_block(writer, "v.blk.0", random, VISION_WIDTH, ("ln1", "ln2", "attn_out"))
    writer.add_tensor("mm.1.weight", 0.2 * random(WIDTH, VISION_WIDTH))
    writer.add_tensor("mm.2.weight", 0.2 * random(WIDTH, WIDTH))
    _finish(writer)


def _write_ear(path: Path) -> None:
    import numpy as np
    from gguf import GGUFWriter

    writer = GGUFWriter(path, "clip")
    writer.add_string("clip.projector_type", "qwen2a")
    writer.add_bool("clip.has_audio_encoder", True)
    numbers = {
        "num_mel_bins": MEL_BINS,
        "embedding_length": VISION_WIDTH,
        "feed_forward_length": 2 * VISION_WIDTH,
        "projection_dim": WIDTH,
        "block_count": 1,
        "attention.head_count": 2,
    }
    for key, value in numbers.items():
        writer.add_uint32(f"clip.audio.{key}", value)
    writer.add_float32("clip.audio.attention.layer_norm_epsilon", 1e-5)

    random = _random(3)
    for number, width in ((1, MEL_BINS), (2, VISION_WIDTH)):
        writer.add_tensor(f"a.conv1d.{number}.weight", (0.1 * random(VISION_WIDTH, width, 3)).astype(np.float16))
        writer.add_tensor(f"a.conv1d.{number}.bias", np.zeros((VISION_WIDTH, 1), np.float32))
    writer.add_tensor("a.position_embd.weight", random(1500, VISION_WIDTH))
    writer.add_tensor("a.post_ln.weight", np.ones(VISION_WIDTH, np.float32))
    writer.add_tensor("a.post_ln.bias", np.zeros(VISION_WIDTH, np.float32))
    _write_block(writer, "a.blk.0", random, VISION_WIDTH, ("ln1", "ln2", "attn_out"))
    for each in ("ln1", "ln2", "attn_q", "attn_v"):
        writer.add_tensor(f"a.blk.0.{each}.bias", np.zeros(VISION_WIDTH, np.float32))
    writer.add_tensor("mm.a.fc.weight", 0.2 * random(WIDTH, VISION_WIDTH))
    writer.add_tensor("mm.a.fc.bias", np.zeros(WIDTH, np.float32))
    _finish(writer)


def _write_block(
    writer: GGUFWriter, name: str, random: Any, width: int, called: tuple[str, str, str], dense: bool = True
) -> None:
    import numpy as np

    norm, second_norm, output = called
    for each in (norm, second_norm):
        writer.add_tensor(f"{name}.{each}.weight", np.ones(width, np.float32))
    for each in ("attn_q", "attn_k", "attn_v", output):
        writer.add_tensor(f"{name}.{each}.weight", 0.2 * random(width, width))
    if not dense:
        return
    for each in ("ffn_gate", "ffn_up"):
        writer.add_tensor(f"{name}.{each}.weight", 0.2 * random(2 * width, width))
    writer.add_tensor(f"{name}.ffn_down.weight", 0.2 * random(width, 2 * width))


def _random(seed: int) -> Any:
    import numpy as np

    source = np.random.default_rng(seed)
    return lambda *shape: source.standard_normal(shape, dtype=np.float32)


def _finish(writer: GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

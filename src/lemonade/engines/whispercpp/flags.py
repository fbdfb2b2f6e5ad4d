"""whisper-server's flags, and what each sets in the library."""

from __future__ import annotations

from typing import Final

from lemonade.engines.arguments import Flag
from lemonade.engines.words import existing, names_in, number, text, whole

#: What a flag sets: an attribute of the library's parameters, after `vad.` one of those for voice activity, after
#: `context.` one of the model's; or `beams` and `best_of`, which are none.
FLAGS: Final = (
    Flag(("-t", "--threads"), "n_threads", whole(1, 512)),
    Flag(("-mc", "--max-context"), "n_max_text_ctx", whole(-1)),
    Flag(("-ml", "--max-len"), "max_len", whole(0)),
    Flag(("-sow", "--split-on-word"), "split_on_word"),
    Flag(("-bo", "--best-of"), "best_of", whole(1, 8)),
    Flag(("-bs", "--beam-size"), "beams", whole(-1, 8)),
    Flag(("-ac", "--audio-ctx"), "audio_ctx", whole(0, 1500)),
    Flag(("-wt", "--word-thold"), "thold_pt", number(0, 1)),
    Flag(("-et", "--entropy-thold"), "entropy_thold", number()),
    Flag(("-lpt", "--logprob-thold"), "logprob_thold", number()),
    Flag(("-nth", "--no-speech-thold"), "no_speech_thold", number(0, 1)),
    Flag(("-tp", "--temperature"), "temperature", number(0, 1)),
    Flag(("-tpi", "--temperature-inc"), "temperature_inc", number(0, 1)),
    Flag(("-nf", "--no-fallback"), "temperature_inc", None, 0.0),
    Flag(("-tr", "--translate"), "translate"),
    Flag(("-tdrz", "--tinydiarize"), "tdrz_enable"),
    Flag(("-sns", "--suppress-nst"), "suppress_nst"),
    Flag(("-l", "--language"), "language", text),
    Flag(("--prompt",), "initial_prompt", text),
    Flag(("-ng", "--no-gpu"), "context.use_gpu", None, False),
    Flag(("-fa", "--flash-attn"), "context.flash_attn"),
    Flag(("-nfa", "--no-flash-attn"), "context.flash_attn", None, False),
    Flag(("--vad",), "vad"),
    Flag(("-vm", "--vad-model"), "vad_model_path", existing),
    Flag(("-vt", "--vad-threshold"), "vad.threshold", number(0, 1)),
    Flag(("-vspd", "--vad-min-speech-duration-ms"), "vad.min_speech_duration_ms", whole(0)),
    Flag(("-vsd", "--vad-min-silence-duration-ms"), "vad.min_silence_duration_ms", whole(0)),
    Flag(("-vmsd", "--vad-max-speech-duration-s"), "vad.max_speech_duration_s", number(0, above=True)),
    Flag(("-vp", "--vad-speech-pad-ms"), "vad.speech_pad_ms", whole(0)),
    Flag(("-vo", "--vad-samples-overlap"), "vad.samples_overlap", number(0)),
)

#: Flags of whisper-server that have no place here, and why.
RESERVED: Final = {
    **dict.fromkeys(
        names_in("-m --model --host --port --public --request-path --inference-path --tmp-dir"), "Lemonade manages it"
    ),
    "--convert": "files of every kind are decoded anyway",
    **dict.fromkeys(
        names_in("-ot --offset-t -on --offset-n -d --duration -nt --no-timestamps"), "it belongs to each request"
    ),
    **dict.fromkeys(
        names_in(
            """
            -p --processors -di --diarize -debug --debug-mode -oved --ov-e-device -dtw --dtw -dev --device
            -ps --print-special -pc --print-colors -pr --print-realtime -pp --print-progress -dl --detect-language
            -nlp --no-language-probabilities -nc --no-context
            """
        ),
        "the library in which whisper.cpp runs here does not have it",
    ),
}

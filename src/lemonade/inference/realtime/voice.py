"""Where speech begins and ends: by its energy, or by how likely a model thinks that it is voice.

Time is counted in samples: the same audio gives the same turns, whatever the size of the messages that brought it.
"""

from __future__ import annotations

import struct
from collections import deque
from operator import mul
from typing import Literal

import msgspec

#: How voice is told from other sounds.
Kind = Literal["energy", "silero"]
#: Milliseconds of audio from one look to the next. Silero's model hears so much at once.
HOP_MS = 20
SILERO_HOP_MS = 32
#: Milliseconds of audio that one look measures, up to its own hop: the original's window.
WINDOW_MS = 100
#: How much less likely than the threshold voice may be that goes on, as it does between two words.
SLACK = 0.15
#: Looks with voice, one after the other, that a start takes at least.
LEAST_VOICED = 2
#: The largest value of a 16-bit sample, which is what 1 means for a threshold.
FULL_SCALE = 32768

Edge = Literal["start", "end"]


class VoiceSettings(msgspec.Struct, frozen=True):
    """When a turn begins and ends; the defaults are those of the specification.

    Attributes:
        threshold: root mean square above which audio is voice, 1 being full scale; with Silero, the likelihood.
        silence_duration_ms: how much of silence ends a turn.
        prefix_padding_ms: how much of voice begins one.
    """

    threshold: float = 0.01
    silence_duration_ms: int = 800
    prefix_padding_ms: int = 250
    kind: Kind = "energy"


#: What counts before a client has said anything.
DEFAULTS: dict[Kind, VoiceSettings] = {"energy": VoiceSettings(), "silero": VoiceSettings(0.5, kind="silero")}


class VoiceDetector:
    """Hears one hop of audio after the other.

    Attributes:
        hop: samples per look.
        speaking: whether a turn is open.
        settings: may be replaced at any time; what was heard counts on.
    """

    def __init__(self, rate: int, settings: VoiceSettings) -> None:
        self._hop_ms = SILERO_HOP_MS if settings.kind == "silero" else HOP_MS
        self.hop = rate * self._hop_ms // 1000
        self.settings = settings
        self.speaking = False
        self._energies: deque[int] = deque(maxlen=WINDOW_MS // HOP_MS)
        self._samples = struct.Struct(f"<{self.hop}h")
        self._voiced = 0
        self._silent = 0

    @property
    def run_ms(self) -> int:
        """Milliseconds of voice without a pause that have not become a turn yet."""
        return 0 if self.speaking else self._voiced * self._hop_ms

    @property
    def pause_ms(self) -> int:
        """Milliseconds since voice was heard, in an open turn."""
        return self._silent * self._hop_ms

    def hear(self, audio: bytes | bytearray, at: int) -> Edge | None:
        """Whether a turn begins or ends with the hop that lies at byte `at` of `audio`, by its energy."""
        samples = self._samples.unpack_from(audio, at)
        self._energies.append(sum(map(mul, samples, samples)))
        power = sum(self._energies) / (len(self._energies) * self.hop)
        return self._note(power > (self.settings.threshold * FULL_SCALE) ** 2)

    def judge(self, likelihood: float) -> Edge | None:
        """Whether a turn begins or ends with a hop that is voice with this likelihood."""
        goes_on = self.speaking or self._voiced > 0
        return self._note(likelihood > self.settings.threshold - (SLACK if goes_on else 0.0))

    def _note(self, is_voice: bool) -> Edge | None:
        if is_voice:
            self._silent = 0
            self._voiced += 1
            if self.speaking or self._voiced < LEAST_VOICED or self.run_ms < self.settings.prefix_padding_ms:
                return None
            self.speaking = True
            return "start"
        self._voiced = 0
        if not self.speaking:
            return None
        self._silent += 1
        if self.pause_ms < self.settings.silence_duration_ms:
            return None
        return "end"

    def reset(self) -> None:
        """Forgets what was heard."""
        self.speaking = False
        self._energies.clear()
        self._voiced = self._silent = 0

"""The audio of one session that was not handed to an engine yet, cut into turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from lemonade.inference.realtime.voice import Edge, VoiceDetector, VoiceSettings

#: Bytes of a sample: signed, 16 bits.
WIDTH = 2
#: Milliseconds of audio that a turn takes along from before its voice: a soft beginning is no voice yet.
LEAD_MS = 300
#: Seconds after which a turn ends without a pause. Noise that never ends must not fill the memory.
MAX_TURN = 300
#: Hops that are heard before others on the loop have their turn again.
BREATH = 50


class AudioBuffer:
    """Audio as it is appended, mono and little-endian.

    Places are counted in samples from the session's first one.

    Args:
        rate: samples per second.
        settings: when turns begin and end; None if the client says so itself.

    Attributes:
        turn_start: where the audio of the open turn begins.
        has_news: whether anything was appended since the last turn, commit or clear.
        is_fresh: whether what comes next does not go on with what was heard; for the one who sets it back.
    """

    def __init__(self, rate: int, settings: VoiceSettings | None) -> None:
        self.rate = rate
        self.has_news = False
        self.is_fresh = True
        self._likelihoods: deque[float] = deque()
        self._voice = VoiceDetector(rate, settings or VoiceSettings())
        self._listens = settings is not None
        self._audio = bytearray()
        self._start = 0
        self._heard = 0

    @property
    def settings(self) -> VoiceSettings | None:
        return self._voice.settings if self._listens else None

    @settings.setter
    def settings(self, settings: VoiceSettings | None) -> None:
        if settings is None:
            if not self.speaking:
                # Kept for a turn that might have begun; the next one begins with what is appended from now on.
                self.clear()
            self._voice.reset()
        else:
            self._voice.settings = settings
        self._listens = settings is not None

    @property
    def is_judged(self) -> bool:
        """Whether it is told from outside, by `judge`, what is voice."""
        return self._listens and self._voice.settings.kind == "silero"

    @property
    def speaking(self) -> bool:
        """Whether a turn is open."""
        return self._voice.speaking

    @property
    def pause_ms(self) -> int:
        """Milliseconds since voice was heard, in an open turn."""
        return self._voice.pause_ms

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return len(self._audio)

    @property
    def turn_start(self) -> int:
        return self._start

    @property
    def heard(self) -> int:
        """Up to where the audio was listened to."""
        return self._heard

    def milliseconds(self, place: int) -> int:
        return place * 1000 // self.rate

    def append(self, audio: bytes) -> None:
        self._audio += audio
        self.has_news = True

    def judge(self, likelihoods: Iterable[float]) -> None:
        """How likely each of the next hops is voice."""
        self._likelihoods.extend(likelihoods)

    def listen(self) -> Iterator[Edge | None]:
        """Each beginning and end of a turn in what was appended, as it is met; None now and then between them.

        After an end the turn is to be taken, with `take`, before the next step.
        """
        if not self._listens:
            self._heard = self._start
            return
        step = self._voice.hop * WIDTH
        longest = MAX_TURN * self.rate
        looks = 0
        while (at := (self._heard - self._start) * WIDTH) + step <= len(self._audio):
            if self.is_judged:
                if not self._likelihoods:
                    return
                edge = self._voice.judge(self._likelihoods.popleft())
            else:
                edge = self._voice.hear(self._audio, at)
            self._heard += self._voice.hop
            if self.speaking and edge is None and self._heard - self._start >= longest:
                edge = "end"
            if not self.speaking:
                self._trim()
            looks += 1
            if edge is not None or looks % BREATH == 0:
                yield edge

    def take(self) -> bytes:
        """The audio of the turn that has ended; what was appended after it stays."""
        return self._cut((self._heard - self._start) * WIDTH)

    def take_all(self) -> bytes:
        """All audio that there is."""
        self._likelihoods.clear()
        self.is_fresh = True
        return self._cut(len(self._audio))

    def copy(self, start: int, end: int) -> bytes:
        """The audio between two places, which have to be kept still."""
        return bytes(self._audio[(start - self._start) * WIDTH : (end - self._start) * WIDTH])

    def clear(self) -> None:
        self.take_all()

    def _cut(self, size: int) -> bytes:
        audio = bytes(self._audio[:size])
        del self._audio[:size]
        self._start += size // WIDTH
        self._heard = self._start
        self._voice.reset()
        self.has_news = bool(self._audio)
        return audio

    def _trim(self) -> None:
        """Lets go of silence, but for what belongs to a turn that may begin now."""
        kept = (self._voice.run_ms + LEAD_MS) * self.rate // 1000
        extra = self._heard - kept - self._start
        if extra > 0:
            del self._audio[: extra * WIDTH]
            self._start += extra

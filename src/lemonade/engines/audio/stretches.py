"""Long recordings in stretches that are looked at one after the other, and how loud they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from lemonade.engines.audio.decode import RATE

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Samples = npt.NDArray[np.float32]

#: Seconds over which loudness is measured: shorter than any pause between two words.
FRAME = 0.03
#: Root mean square of a frame below which nothing can be in it. Speech that models still understand lies above; what
#: is left of it in 16 bits is one or two steps.
SILENCE = 1e-4
#: Part of a stretch at its end within which its cut is looked for, and seconds of the pause that is wanted there.
_CHOICE = 0.25
_PAUSE = 0.3


def stretches(blocks: Iterable[Samples], longest: float) -> Iterator[tuple[float, Samples]]:
    """Cuts at the quietest place near the end of each stretch, so that no word is cut that need not be.

    Args:
        blocks: at `RATE`.
        longest: seconds of one stretch; no more than that, and one block, is held.

    Yields:
        where the stretch begins, in seconds, and its samples.
    """
    import numpy as np

    held: list[Samples] = []
    size = begin = 0
    most = int(longest * RATE)
    for block in blocks:
        held.append(block)
        size += len(block)
        while size > most:
            whole = np.concatenate(held)
            cut = _quietest(whole[:most])
            yield begin / RATE, whole[:cut]
            begin += cut
            held, size = [whole[cut:]], size - cut
    if size:
        yield begin / RATE, np.concatenate(held)


def levels(samples: Samples) -> Samples:
    """The root mean square of each frame; the last one may be short."""
    import numpy as np

    width = int(FRAME * RATE)
    padded = np.zeros(-(-len(samples) // width) * width, np.float32)
    padded[: len(samples)] = samples
    made: Samples = np.sqrt(np.square(padded.reshape(-1, width)).mean(axis=1))
    return made


def _quietest(samples: Samples) -> int:
    """The middle of the quietest pause within the last part, as an index of a sample."""
    import numpy as np

    loudness = levels(samples)
    width = max(int(_PAUSE / FRAME), 1)
    first = int(len(loudness) * (1 - _CHOICE))
    power = np.convolve(np.square(loudness[first:]), np.ones(width), "valid")
    return int((first + int(power.argmin()) + width / 2) * FRAME * RATE)

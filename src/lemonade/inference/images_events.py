"""The events of the bundled engine, whole."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from lemonade.engines.sdcpp import protocol
from lemonade.errors import EngineSilent
from lemonade.inference.failure import engine_failure
from lemonade.inference.relay import MAX_ERROR

if TYPE_CHECKING:
    from lemonade.engines.reply import Reply

_ERROR = b"event: error\n"
_COMPLETED = f".{protocol.COMPLETED}\n".encode()


async def engine_events(reply: Reply, engine: str) -> AsyncIterator[bytes]:
    """Yields each event of an answer as it is complete.

    Raises:
        RequestError, EngineError: the engine failed, before the first event or in one.
        EngineSilent: it ended without a picture.
    """
    if reply.status != 200:
        raise engine_failure(reply.status, await reply.read(MAX_ERROR), engine)
    completed = False
    held = bytearray()
    # Events with pictures come in many pieces: what was looked at is not looked at again.
    looked = 0
    while chunk := await reply.chunk():
        held += chunk
        while (end := held.find(b"\n\n", max(0, looked - 1))) >= 0:
            event = bytes(held[: end + 2])
            del held[: end + 2]
            looked = 0
            if event.startswith(_ERROR):
                raise engine_failure(500, event.partition(b"data: ")[2].strip(), engine)
            completed = completed or _COMPLETED in event[:100]
            yield event
        looked = len(held)
    if not completed:
        raise EngineSilent(f"{engine} closed the stream without a picture.")

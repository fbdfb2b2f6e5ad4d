"""Pictures by an sd-server, which speaks an API of its own, makes a few at a time, and cannot be told to stop."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import msgspec

from lemonade.engines.process import EngineProcess
from lemonade.engines.sdcpp import protocol
from lemonade.errors import EngineReplied, InvalidArgument
from lemonade.inference.failure import engine_failure
from lemonade.inference.images import Wanted
from lemonade.inference.images_dialects import Asked, for_server
from lemonade.inference.relay import MAX_ERROR

if TYPE_CHECKING:
    from lemonade.model import Model
    from lemonade.residency.lease import Lease

#: Pictures of one request; more are quietly left out. Source: stable-diffusion.cpp's server.
AT_ONCE = 8
#: Steps; more are quietly left out. Source: stable-diffusion.cpp's server.
MAX_STEPS = 100

#: One request at a time goes to each server, so that ending it gives up no work but that of the client who left.
_turns: WeakKeyDictionary[EngineProcess, asyncio.Lock] = WeakKeyDictionary()


class _Picture(msgspec.Struct):
    b64_json: str


class _Pictures(msgspec.Struct):
    data: list[_Picture]


_pictures = msgspec.json.Decoder(_Pictures)


async def painted(wanted: Wanted, model: Model, lease: Lease) -> AsyncIterator[dict[str, Any]]:
    """Yields the pictures as they are made, each as an entry of `data`.

    Raises:
        InvalidArgument: what no sd-server does.
        EngineError: it failed, or is lost.
    """
    if wanted.steps is not None and wanted.steps > MAX_STEPS:
        raise InvalidArgument(f"'steps' must be at most {MAX_STEPS} for an sd-server.", param="steps")
    options, process = lease.resident.options, lease.resident.process
    async with _turns.setdefault(process, asyncio.Lock()):
        for part in _parts(wanted):
            # Files are read beside the loop.
            asked = await asyncio.to_thread(for_server, part, model, options)
            try:
                found = await _answer(lease, asked)
            except asyncio.CancelledError:
                process.abandon()
                raise
            if len(found) != part.n:
                name = lease.resident.launch.name
                raise EngineReplied(f"{name} made {len(found)} of {part.n} pictures.", status=500)
            for number, picture in enumerate(found):
                yield {"b64_json": picture.b64_json, **_info(part, number)}
            lease.touch()


def _parts(wanted: Wanted) -> list[Wanted]:
    """The request in parts that a server takes, whose seeds go on from each other."""
    seed = wanted.seed
    if seed is not None and seed < 0:
        seed = secrets.randbits(31)
    if seed is None and wanted.n > AT_ONCE:
        seed = protocol.SEED
    return [
        replace(wanted, n=min(AT_ONCE, wanted.n - first), seed=None if seed is None else seed + first)
        for first in range(0, wanted.n, AT_ONCE)
    ]


def _info(part: Wanted, number: int) -> Mapping[str, Any]:
    return {} if part.seed is None else {"generation_info": {"seed": part.seed + number}}


async def _answer(lease: Lease, asked: Asked) -> list[_Picture]:
    name = lease.resident.launch.name
    reply = await lease.connection.request("POST", asked.path, asked.body, asked.headers)
    try:
        if reply.status != 200:
            raise engine_failure(reply.status, await reply.read(MAX_ERROR), name)
        body = await reply.read()
    finally:
        reply.close()
    try:
        return _pictures.decode(body).data
    except msgspec.MsgspecError as error:
        raise EngineReplied(f"The engine's answer lacks what it must have: {error}.", status=502) from None

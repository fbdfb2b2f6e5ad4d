"""Providers in this process, and a sink that keeps what it is given."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from lemonade.engines.cloud.providers import Providers
from lemonade.settings import Layer, Settings
from tests.engines.fake_provider import FakeProvider


def settings_in(folder: Path, **values: Any) -> Settings:
    file = folder / "config.json"
    return Settings([Layer(str(file), values)], file)


@asynccontextmanager
async def installed(
    folder: Path, *fakes: FakeProvider, key: str | None = "ck-right-key", **entry: Any
) -> AsyncIterator[Providers]:
    """The fake providers as `afar`, `afar1`, …, their models discovered."""
    providers = Providers(settings_in(folder), {})
    try:
        for number, fake in enumerate(fakes):
            more = {"allow_insecure_http": True, "wire_format": fake.wire, **entry}
            await providers.install({"name": f"afar{number or ''}", "base_url": fake.url, **more}, key)
        yield providers
    finally:
        await providers.close()


class Kept:
    """A sink. `pause` holds up the first piece."""

    def __init__(self) -> None:
        self.started = False
        self.ended = False
        self.pieces: list[bytes] = []
        self.whole: bytes | None = None
        self.headers: dict[str, str] = {}
        self.arrived = asyncio.Event()

    async def start(self) -> None:
        self.started = True

    async def write(self, data: bytes) -> None:
        assert not self.ended
        self.pieces.append(data)
        self.arrived.set()

    async def end(self, data: bytes = b"") -> None:
        self.ended = True
        self.pieces.append(data)

    async def reply(self, body: bytes) -> None:
        self.started = self.ended = True
        self.whole = body

    def tell(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode()] = value.decode()

    @property
    def bytes(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def events(self) -> list[Any]:
        """The `data` of all events, decoded but for `[DONE]`."""
        lines = [line for line in self.bytes.decode().splitlines() if line.startswith("data:")]
        texts = [line.removeprefix("data:").strip() for line in lines]
        return [text if text == "[DONE]" else json.loads(text) for text in texts]

    @property
    def text(self) -> str:
        chunks = [event for event in self.events if event != "[DONE]"]
        return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])

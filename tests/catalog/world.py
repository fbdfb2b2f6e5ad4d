"""A catalog over a temporary directory, with real files and the real store."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from lemonade.catalog.catalog import Catalog
from lemonade.catalog.options import Options
from lemonade.hub.store import Store
from lemonade.model import Checkpoint, Model
from lemonade.paths import Paths
from lemonade.settings import Settings
from lemonade.system.hardware import GIB, Hardware

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class World:
    """Everything that a catalog needs; `reasons` says which recipes cannot run and why."""

    def __init__(self, root: Path, *, memory: int = 64 * GIB, available: int = 32 * GIB) -> None:
        self.root = root
        self.paths = Paths(root / "cache", root / "config", root / "run", root / "models")
        self.settings = Settings.open(self.paths.config, {})
        self.reasons: dict[str, str] = {}
        self.hardware = Hardware(
            processor="Test CPU",
            os_version="Test OS",
            memory=memory,
            memory_available=lambda: available,
            look_for_gpus=lambda: (),
        )
        self.catalog = self.open()
        self.options = Options(self.catalog, self.settings, self.hardware, lambda recipe: "vulkan")

    def open(self) -> Catalog:
        """Another catalog over the same files, as another process would have it."""
        return Catalog(
            paths=self.paths,
            settings=self.settings,
            hardware=self.hardware,
            store=Store(self.paths.models),
            unsupported=self.reasons.get,
        )

    def write(self, name: str, value: Any) -> Path:
        """A file of the configuration, as an editor writes it."""
        folder = self.paths.cache if name == "aliases.json" else self.paths.config
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / name
        path.write_text(value if isinstance(value, str) else json.dumps(value))
        return path

    def read(self, name: str) -> Any:
        folder = self.paths.cache if name == "aliases.json" else self.paths.config
        return json.loads((folder / name).read_text())

    def download(self, model: Model, content: bytes | None = None, *, tell: bool = True) -> None:
        """Puts files for all roles of a model where a download puts them."""
        for text in model.checkpoints.values():
            checkpoint = Checkpoint.parse(text)
            folder = self.paths.models / f"models--{checkpoint.repository.replace('/', '--')}"
            name = checkpoint.variant if checkpoint.variant.endswith(".gguf") else f"model-{checkpoint.variant}.gguf"
            file = folder / "snapshots" / COMMIT / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content if content is not None else gguf())
            (folder / "refs").mkdir(exist_ok=True)
            (folder / "refs" / "main").write_text(COMMIT)
        if tell:
            self.catalog.changed()

    def ids(self, *, show_all: bool = False) -> list[str]:
        return [entry.id for entry in self.catalog.listed(show_all=show_all)]


def gguf(architecture: str = "qwen3", **facts: int | str) -> bytes:
    """A GGUF file that is all header. Keys without a dot belong to the architecture."""
    pairs: dict[str, int | str] = {"general.architecture": architecture}
    for key, value in facts.items():
        key = key.replace("__", ".")
        pairs[key if key.startswith(("tokenizer.", "general.")) else f"{architecture}.{key}"] = value
    body = b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs))
    for key, value in pairs.items():
        body += _string(key)
        body += struct.pack("<II", 4, value) if isinstance(value, int) else struct.pack("<I", 8) + _string(value)
    return body


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


USER = {"recipe": "llamacpp", "checkpoint": "org/repo-GGUF:Q4_0"}

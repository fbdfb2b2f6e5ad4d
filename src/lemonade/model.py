"""What a model is: one value that the catalog makes and every floor above reads."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Origin = Literal["builtin", "user", "extra", "cloud"]

#: Deployment labels, their synonyms folded, with the type name that /health and the residency pools use.
#: Source: the specification's table "Deployment labels".
MODEL_TYPES: dict[str, str] = {
    "chat": "llm",
    "transcription": "transcription",
    "embeddings": "embedding",
    "reranking": "reranking",
    "image": "image",
    "tts": "tts",
    "audio-generation": "audio-generation",
    "classification": "classification",
    "3d": "mesh",
}

MODE_SYNONYMS: dict[str, str] = {"embedding": "embeddings", "classifier": "classification"}


def deployment_mode(label: str) -> str | None:
    """The deployment mode that a label names, or None for a label that names none."""
    label = MODE_SYNONYMS.get(label, label)
    return label if label in MODEL_TYPES else None


class Checkpoint(msgspec.Struct, frozen=True):
    """`repository[:variant]`, split at the first colon; the variant is a quantisation, file, folder, `*` or empty."""

    repository: str
    variant: str = ""

    @classmethod
    def parse(cls, text: str) -> Checkpoint:
        repository, _, variant = text.partition(":")
        return cls(repository, variant)

    def __str__(self) -> str:
        return f"{self.repository}:{self.variant}" if self.variant else self.repository


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """One model as the catalog knows it, whether or not its files are here.

    Attributes:
        name: the bare name, without an origin's prefix.
        checkpoints: role (`main`, `mmproj`, `draft`, `vae`, …) to the checkpoint as written in the row. For a
            local model the value of `main` is an absolute path.
        registry: the registry that the files come from (`huggingface`, `modelscope`, `pypi`).
        source: `local_upload`, `local_path` or `extra_models_dir` for local files, else empty.
        size: GiB, 0 when unknown.
        recipe_options: options that the row authors; saved ones go on top (see `catalog.options`).
        hashes: file name to sha256, for registries that do not tell it themselves.
    """

    name: str
    recipe: str
    origin: Origin = "builtin"
    checkpoints: dict[str, str] = {}
    labels: tuple[str, ...] = ()
    size: float = 0.0
    suggested: bool = False
    registry: str = "huggingface"
    source: str = ""
    recipe_options: dict[str, Any] = {}
    image_defaults: dict[str, Any] = {}
    components: tuple[str, ...] = ()
    system_prompt: str = ""
    hashes: dict[str, str] = {}
    extras: dict[str, Any] = {}

    @property
    def canonical(self) -> str:
        """The name that no other model can have: `builtin.X`, `user.X`, `extra.X` or `cloud.X`."""
        return f"{self.origin}.{self.name}"

    @property
    def checkpoint(self) -> str:
        """The main checkpoint as written, `""` for a collection that lists its components itself."""
        return self.checkpoints.get("main", "")

    @property
    def mode(self) -> str:
        """The deployment mode: `chat` if any label says so, else the first label that names one."""
        modes = [mode for label in self.labels if (mode := deployment_mode(label))]
        if "chat" in modes or not modes:
            return "chat"
        return modes[0]

    @property
    def type(self) -> str:
        """The residency pool and the name in /health: `llm`, `embedding`, …"""
        return MODEL_TYPES[self.mode]

    @property
    def is_collection(self) -> bool:
        return self.recipe.startswith("collection.")

    @property
    def is_local(self) -> bool:
        """Whether the files lie where the user put them, so that nothing is ever downloaded or deleted."""
        return self.source in ("local_path", "extra_models_dir")

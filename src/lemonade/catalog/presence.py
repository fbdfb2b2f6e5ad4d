"""What of each model is on the disk, remembered between looks."""

from __future__ import annotations

from pathlib import Path

import msgspec

from lemonade.catalog.collections import manifest
from lemonade.catalog.entry import CheckpointStatus, gigabytes
from lemonade.catalog.headers import Headers
from lemonade.catalog.index import Index
from lemonade.catalog.rows import is_size
from lemonade.hub.gguf import Header
from lemonade.hub.snapshots import Witness
from lemonade.hub.store import OPTIONAL_ROLES, Store
from lemonade.model import Model
from lemonade.system.hardware import GIB

#: What a file's header may add to the labels of a language model, in this order.
CAPABILITIES = ("vision", "tool-calling", "mtp")


class State(msgspec.Struct, frozen=True):
    """One model's files.

    Attributes:
        model: with the labels that the header of its file adds, and the components that a manifest lists.
        downloaded: everything that is required is here; for a collection, all components are.
        size: GiB: on disk when downloaded, else the row's.
        status: one per role, `main` first.
        header: facts from the GGUF file, when it is here.
    """

    model: Model
    downloaded: bool
    size: float
    status: tuple[CheckpointStatus, ...]
    header: Header | None = None


class Presence:
    """The states of the models of an index, each examined when it is first asked for.

    Args:
        headers: the file in which the facts of model files are kept for the next daemon.
    """

    def __init__(self, store: Store, headers: Path | None = None) -> None:
        self._store = store
        self._headers = Headers(store.facts, headers)
        self._states: dict[str, State] = {}
        self._witnesses: dict[str, Witness | None] = {}

    def state(self, index: Index, canonical: str) -> State:
        """What was true when the model was last examined."""
        state = self._states.get(canonical)
        if state is None:
            state = self._states[canonical] = self._examine(index, index.models[canonical])
        return state

    def recheck(self, index: Index) -> bool:
        """Looks at the disk for all models that can run here; answers whether something differs from before."""
        before, self._states = self._states, {}
        holds, witnesses = self._store.holds, self._witnesses
        with self._store.at_once():
            for canonical in index.models:
                if canonical in index.unsupported:
                    continue
                state, witness = before.get(canonical), witnesses.get(canonical)
                if state is not None and witness is not None and holds(witness):
                    self._states[canonical] = state
                else:
                    self.state(index, canonical)
        self._headers.save()
        return self._states != before

    def forget(self, canonical: str | None = None) -> None:
        """Has one model, or all, examined anew when next asked for."""
        if canonical is None:
            self._states.clear()
            self._witnesses.clear()
        else:
            self._states.pop(canonical, None)
            self._witnesses.pop(canonical, None)

    def known(self) -> list[str]:
        """The canonical names of the models that have been examined."""
        return list(self._states)

    def _examine(self, index: Index, model: Model) -> State:
        if model.recipe == "cloud":
            return State(model, True, 0.0, ())  # it is somewhere else, and whole
        located, size, witness = self._store.look(model)
        # A collection is here when its components are, whatever its own files do.
        self._witnesses[model.canonical] = None if model.is_collection else witness
        status = tuple(
            CheckpointStatus(
                type=role,
                present=located.get(role) is not None,
                required=role not in OPTIONAL_ROLES,
                registry="" if model.source else model.registry,
                path=located.get(role),
            )
            for role in sorted(model.checkpoints, key=lambda role: role != "main")
        )
        if model.is_collection:
            return self._examine_collection(index, model, located.get("main"), status)
        # What a row says stays as it is written; an extra model's size was added up.
        said = gigabytes(int(model.size * GIB)) if model.origin == "extra" else model.size
        if not any(each.present for each in status) or not all(each.present for each in status if each.required):
            return State(model, False, said, status)
        header = self._headers.of(located.get("main")) if model.recipe == "llamacpp" else None
        if header is not None and model.type == "llm":
            added = [each for each in CAPABILITIES if each in header.capabilities and each not in model.labels]
            if added:
                model = msgspec.structs.replace(model, labels=(*model.labels, *added))
        return State(model, True, gigabytes(size) or said, status, header)

    def _examine_collection(
        self, index: Index, model: Model, folder: Path | None, status: tuple[CheckpointStatus, ...]
    ) -> State:
        # What a row with a repository lists itself is ignored: the manifest is what was downloaded.
        found = manifest(folder) if model.checkpoints else {}
        names = found.get("components", ()) if model.checkpoints else model.components
        size, prompt = found.get("size"), found.get("system_prompt")
        model = msgspec.structs.replace(
            model,
            components=tuple(index.component(name) for name in names),
            size=model.size or (float(size) if is_size(size) else 0.0),
            system_prompt=model.system_prompt or (prompt if isinstance(prompt, str) else ""),
        )
        return State(model, self._has_all(index, model), model.size, status)

    def _has_all(self, index: Index, collection: Model) -> bool:
        def here(name: str) -> bool:
            part = index.models.get(name)
            # A collection inside a collection is refused when it is registered; a hand-edited one never counts.
            return part is not None and not part.is_collection and self.state(index, name).downloaded

        return bool(collection.components) and all(here(name) for name in collection.components)

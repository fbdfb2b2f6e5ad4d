"""What exists: every model under every name, and what of it is here."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lemonade.catalog import registration, rows
from lemonade.catalog.aliases import Aliases
from lemonade.catalog.collections import manifest
from lemonade.catalog.entry import Entry
from lemonade.catalog.extra_models import ExtraModels
from lemonade.catalog.index import Index
from lemonade.catalog.outdated import Outdated
from lemonade.catalog.presence import Presence, State
from lemonade.catalog.saved_options import SavedOptions, own_options
from lemonade.catalog.source import Nowhere, Source
from lemonade.catalog.stores import ObjectFile, adopt
from lemonade.catalog.support import Support
from lemonade.errors import InvalidArgument, ModelNotFound, ModelNotSupported
from lemonade.hub.gguf import Header
from lemonade.hub.store import Store
from lemonade.model import Model
from lemonade.paths import Paths
from lemonade.settings import Settings
from lemonade.system.hardware import Hardware

log = logging.getLogger("lemonade.catalog")

#: Seconds for which a listing trusts what it knows of the disk. What the daemon itself changes shows at once; this is
#: about files that other programs bring or remove. A load looks at the disk anyway.
RECHECK_SECONDS = 1.0

#: Settings that decide what can be listed.
_DECISIVE = ("disable_model_filtering", "enable_dgpu_gtt", "extra_models_dir", "models_dir", "llamacpp.prefer_system")


class Catalog:
    """The models that exist.

    Use it from one thread; `changed()` may be called from any.

    Args:
        unsupported: why this machine cannot run a recipe, or None.
        check: looks at the options of a definition; raises InvalidArgument.
        cloud: the models of cloud providers.

    Attributes:
        aliases: second names.
        saved: options that were saved for single models.
        outdated: models for which a registry has newer files.
        extra: the folder of the person's own files; its `watch()` is a task for the application.
    """

    def __init__(
        self,
        *,
        paths: Paths,
        settings: Settings,
        hardware: Hardware,
        store: Store,
        unsupported: Callable[[str], str | None],
        check: Callable[[str, Mapping[str, Any]], None] = lambda recipe, options: None,
        cloud: Source = Nowhere(),  # noqa: B008 - it has no state
    ) -> None:
        self._settings = settings
        self._cloud = cloud
        self._store = store
        self._unsupported = unsupported
        self._check = check
        self._support = Support(hardware, unsupported, lambda: bool(settings["enable_dgpu_gtt"]))
        self._builtin = rows.builtin()
        self._extra_directory: Path | None = None
        for name in ("user_models.json", "recipe_options.json"):
            adopt(name, paths.cache, paths.config)
        self._user_file = ObjectFile(paths.config / "user_models.json")
        self._user: dict[str, tuple[Any, Model | None]] = {}
        self.saved = SavedOptions(paths.config / "recipe_options.json", self._builtin)
        self.aliases = Aliases(paths.cache / "aliases.json", lambda name: self._index().canonical(name) is not None)
        self.extra = ExtraModels(lambda: self._extra_directory)
        self._presence = Presence(store, paths.cache / "headers.json")
        self._checked = -RECHECK_SECONDS
        self._known: Index | None = None
        self._seen = (0, 0, 0, 0)
        self._seen_around = (0, 0, 0)
        self.outdated = Outdated(paths.cache / "updates.json")
        self._listings: dict[bool, list[Entry]] = {}
        self._version = 0
        self._lock = threading.Lock()
        self._dirty = 0
        self._find_extra_directory()
        settings.subscribe(self._settings_changed)

    @property
    def version(self) -> int:
        """Grows with every change of what can be listed."""
        self._recheck()
        return self._version

    def changed(self) -> None:
        """Says that files of models came or went, or that engines did. May be called from any thread."""
        with self._lock:  # an increment that another thread undoes would be a change that nobody sees
            self._dirty += 1

    def find(self, name: str) -> Model:
        """The model that `name` means: its id, a prefixed name, an alias; `:latest` behind it is overlooked.

        Raises:
            ModelNotFound: nothing has this name.
            ModelNotSupported: it cannot run on this machine.
        """
        return self._presence.state(self._index(), self._resolve(name)).model

    def lookup(self, name: str) -> Model | None:
        """The model of exactly this name, aliases apart, also one that cannot run here: to delete or describe it."""
        index = self._index()
        canonical = index.canonical(name)
        return index.models[canonical] if canonical else None

    def listed(self, *, show_all: bool) -> list[Entry]:
        """The models that can run here, in the order of their ids, then the aliases of these.

        Args:
            show_all: also those that are not downloaded.
        """
        self._recheck()
        listing = self._listings.get(show_all)
        if listing is None:
            listing = self._listings[show_all] = self._list(show_all)
        return list(listing)

    def entry(self, name: str) -> Entry:
        """As `find`, with what the listing shows; an alias keeps its name as the id.

        Raises:
            ModelNotFound, ModelNotSupported: as `find`.
        """
        canonical = self._resolve(name)
        self._recheck()
        index = self._index()
        shown = index.public[canonical]
        if index.canonical(name) is None and (alias := self._alias(name)):
            shown = alias
        return self._entry(index, self.saved.all(), canonical, shown)

    def entry_or_none(self, name: str) -> Entry | None:
        """As `entry`, None for what does not exist or cannot run here."""
        try:
            return self.entry(name)
        except (ModelNotFound, ModelNotSupported):
            return None

    def public_id(self, model: Model) -> str:
        """The id under which the listing shows the model."""
        return self._index().public.get(model.canonical, model.canonical)

    def is_downloaded(self, model: Model) -> bool:
        """Whether everything that the model needs is on the disk at this moment; for a collection, all components."""
        if not model.is_collection:
            return model.recipe == "cloud" or self._store.is_downloaded(model)
        for name in (model.canonical, *self._here(model).model.components):
            self._presence.forget(name)
        return self._here(model).downloaded if model.canonical in self._index().models else False

    def manifest(self, collection: Model) -> dict[str, Any]:
        """What a collection's repository says of it, `{}` when it is not here."""
        return manifest(self._store.locate(collection).get("main"))

    def header(self, model: Model) -> Header | None:
        """The facts in the model's GGUF file; None when it is not here or is none."""
        return self._here(model).header

    def size(self, model: Model) -> float:
        """GiB: on disk when downloaded, else what the row says."""
        return self._here(model).size

    def reason(self, model: Model) -> str | None:
        """Why the model cannot run here, or None."""
        return self._index().unsupported.get(model.canonical)

    def all_models(self) -> list[Model]:
        """Every model, also those that cannot run here: what may lay claim to files in the cache."""
        return [model for model in self._index().models.values() if model.recipe != "cloud"]

    def unavailable_recipes(self) -> list[str]:
        """Recipes of which every model was left out, at least one of them for want of memory."""
        index = self._index()
        left = {model.recipe for name, model in index.models.items() if name not in index.unsupported}
        big = {index.models[name].recipe for name in index.unsupported}
        return sorted(recipe for recipe in big - left if self._unsupported(recipe) is None)

    # A person's own models.

    def register(self, definition: Mapping[str, Any], *, keep: bool = False) -> Model:
        """Keeps a definition of a model. Nothing is downloaded.

        Args:
            definition: `model_name` (`user.…`), `recipe`, `checkpoint` or `checkpoints`, and further keys.
            keep: refuse another definition of a model that exists already, instead of replacing it.

        Raises:
            InvalidArgument: with `param` naming the field; nothing is kept.
            OSError: the file cannot be written.
        """
        return self.register_all([definition], keep=keep)[0]

    def register_all(self, definitions: Sequence[Mapping[str, Any]], *, keep: bool = False) -> list[Model]:
        """As `register`, all of them or none; a later one may name an earlier one as its component."""
        default = str(self._settings["default_model_source"])
        kept: dict[str, Any] = {}
        models: dict[str, Model] = {}
        for definition in definitions:
            bare, row = registration.define(
                definition, lambda name: models.get(name) or self.lookup(name), default_source=default
            )
            model = rows.parse(bare, row, "user")
            self._check(model.recipe, model.recipe_options)
            if keep:
                registration.refuse_change(self._index().models.get(model.canonical), model)
            kept[bare] = row
            models[model.canonical] = model
        self._user_file.change(lambda values: values.update(kept))
        return [self._index().models[canonical] for canonical in models]

    async def delete(self, model: Model) -> None:
        """Frees the files that no other model uses, and forgets the model if it is the person's own.

        Saved options stay, for when it comes back; so do a collection's components.

        Raises:
            OSError: a file cannot be removed, or the definition cannot be.
        """
        if model.recipe != "cloud" and (not model.is_collection or model.checkpoints):
            # Taking a large file off the disk takes a while; the daemon answers others meanwhile.
            await asyncio.to_thread(self._store.delete, model, self.all_models())
        if model.origin == "user":

            def forget(values: dict[str, Any]) -> None:
                values.pop(model.name, None)

            self._user_file.change(forget)
        self.changed()

    def arrived(self, model: Model) -> None:
        """Says that a model's files have been brought up to date."""
        self.outdated.settle(model.canonical)
        self.changed()

    async def watch(self) -> None:
        """Keeps an eye on the folder of extra models until it is cancelled."""
        await self.extra.watch()

    # How it is kept up to date.

    def _index(self) -> Index:
        self._user_file.values()
        extra = self.extra.found()
        cloud = self._cloud.models()
        seen = (self._dirty, self._user_file.version, self.extra.version, self._cloud.version)
        if self._known is None or seen != self._seen:
            self._support.forget()
            before, self._known = self._known, Index(self._builtin, extra, self._user_models(), self._reason, cloud)
            if before is None or seen[0] != self._seen[0]:
                self._presence.forget()
                self._checked = -RECHECK_SECONDS
            else:
                self._forget_changed(before, self._known)
            self._seen = seen
            self._new_version()
        return self._known

    def _forget_changed(self, before: Index, after: Index) -> None:
        for canonical in self._presence.known():
            model = after.models.get(canonical)
            if model != before.models.get(canonical) or (model is not None and model.is_collection):
                self._presence.forget(canonical)

    def _new_version(self) -> None:
        self._version += 1
        self._listings.clear()

    def _user_models(self) -> dict[str, Model]:
        parsed: dict[str, tuple[Any, Model | None]] = {}
        for name, row in self._user_file.values().items():
            before = self._user.get(name)
            if before is not None and before[0] == row:
                parsed[name] = before
                continue
            model: Model | None = None
            try:
                if name.startswith(registration.RESERVED) or not name:
                    raise InvalidArgument("its name is reserved or empty")
                model = rows.parse(name, row, "user")
            except InvalidArgument as error:
                log.error("The model %r in %s is left out until it is corrected: %s", name, self._user_file.path, error)
            parsed[name] = (row, model)
        self._user = parsed
        return {name: model for name, (_, model) in parsed.items() if model is not None}

    def _reason(self, model: Model) -> str | None:
        if not model.checkpoints and not model.components and model.origin == "builtin":
            return (
                "This version does not know where its files are. Register it with its checkpoint under a user.* name."
            )
        return None if self._settings["disable_model_filtering"] else self._support.reason(model)

    def _settings_changed(self, changes: Mapping[str, Any]) -> None:
        if "extra_models_dir" in changes:
            self._find_extra_directory()
            self.extra.relocate()
        if any(key in _DECISIVE or key.endswith("_bin") for key in changes):
            self.changed()

    def _find_extra_directory(self) -> None:
        directory = self._settings["extra_models_dir"]
        self._extra_directory = Path(directory).expanduser().absolute() if directory else None

    def _here(self, model: Model) -> State:
        index = self._index()
        if model.canonical in index.models:
            return self._presence.state(index, model.canonical)
        return State(model, False, model.size, ())

    def _resolve(self, name: str) -> str:
        index = self._index()
        canonical = self._canonical(index, name)
        if canonical is None and name.endswith(":latest"):
            canonical = self._canonical(index, name.removesuffix(":latest"))
        if canonical is None:
            message = index.not_found(name)
            if name.endswith("-FLM") and (refusal := self._unsupported("flm")):
                message += f" The FLM backend is not ready: {refusal}"
            if hint := self._cloud.hint(name):
                message += f" {hint}"
            raise ModelNotFound(message, requested=name)
        if refusal := index.unsupported.get(canonical):
            recipe = index.models[canonical].recipe
            message = f"Model '{name}' cannot be used on this system (recipe: {recipe}): {refusal}"
            raise ModelNotSupported(message, requested=name)
        return canonical

    def _canonical(self, index: Index, name: str) -> str | None:
        canonical = index.canonical(name)
        if canonical is None and (target := self.aliases.target(name)):
            canonical = index.canonical(target)
        return canonical

    def _alias(self, name: str) -> str | None:
        for each in (name, name.removesuffix(":latest")):
            if self.aliases.target(each):
                return each
        return None

    def _recheck(self) -> None:
        """Brings what is known of the disk up to date, at most once in `RECHECK_SECONDS` unless told of a change."""
        index = self._index()
        around = (self.aliases.version, self.saved.version, self.outdated.version)
        if around != self._seen_around:
            self._seen_around = around
            self._new_version()
        now = time.monotonic()
        if now - self._checked >= RECHECK_SECONDS:
            self._checked = now
            if self._presence.recheck(index):
                self._new_version()

    def _list(self, show_all: bool) -> list[Entry]:
        index = self._index()
        shown = {
            index.public[name]: name
            for name in index.models
            if name not in index.unsupported and (show_all or self._presence.state(index, name).downloaded)
        }
        saved = self.saved.all()
        entries = [self._entry(index, saved, name, shown_id) for shown_id, name in sorted(shown.items())]
        listed = set(shown.values())
        for alias in self.aliases.all():
            canonical = self._canonical(index, alias)
            if canonical in listed and alias not in shown:
                entries.append(self._entry(index, saved, canonical, alias))
        return entries

    def _entry(self, index: Index, saved: Mapping[str, Any], canonical: str, shown: str) -> Entry:
        state = self._presence.state(index, canonical)
        return Entry(
            id=shown,
            model=state.model,
            downloaded=state.downloaded,
            size=state.size,
            max_context_window=state.header.context_length if state.header else None,
            checkpoint_status=state.status,
            components=tuple(index.public.get(name, name) for name in state.model.components),
            recipe_options=own_options(state.model, self.saved.of(state.model, saved)),
            update_available=state.downloaded and canonical in self.outdated.names,
        )

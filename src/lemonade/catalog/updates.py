"""Whether the registries have newer files: asked for by somebody, or once a day."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from lemonade.catalog.catalog import Catalog
from lemonade.errors import HubError, RepositoryNotFound
from lemonade.hub.downloads import Downloads
from lemonade.hub.freshness import MOVING, is_outdated
from lemonade.hub.store import Store
from lemonade.model import Model
from lemonade.settings import Settings

log = logging.getLogger("lemonade.catalog")

#: Seconds from the start to the first look, between looks, and between the questions whether one is due.
FIRST, DAY, PAUSE = 600.0, 86_400.0, 3_600.0


class Answers(NamedTuple):
    """Canonical name to whether there are newer files, and to what went wrong."""

    found: dict[str, bool]
    failures: dict[str, HubError]


class Updates:
    """Asks the registries, and notes in the catalog what they say.

    Args:
        wanted: whether somebody wants a model to be looked for without being asked.
    """

    def __init__(
        self, catalog: Catalog, store: Store, downloads: Downloads, settings: Settings, wanted: Callable[[Model], bool]
    ) -> None:
        self._catalog = catalog
        self._store = store
        self._downloads = downloads
        self._settings = settings
        self._wanted = wanted

    def candidates(self) -> list[Model]:
        """The downloaded models whose files may change at their registry."""
        models = {entry.model.canonical: entry.model for entry in self._catalog.listed(show_all=False)}
        return [
            model
            for model in models.values()
            if model.checkpoints and not model.source and model.recipe != "cloud" and model.registry in MOVING
        ]

    async def check(self, models: list[Model]) -> Answers:
        """Asks about these models. When nobody answers, nothing is noted.

        Raises:
            Offline
        """
        stop = threading.Event()
        registries = {model.registry: self._downloads.registry(model) for model in models}
        # One repository may serve many models; its hub is asked once.
        listings = {name: functools.cache(registry.listing) for name, registry in registries.items()}
        answers = Answers({}, {})

        def ask() -> None:
            for model in models:
                if stop.is_set():
                    return
                try:
                    newer = is_outdated(self._store.models, model, listings[model.registry])
                except RepositoryNotFound:
                    newer = False  # there is nothing newer to be had
                except HubError as error:
                    answers.failures[model.canonical] = error
                    continue
                answers.found[model.canonical] = newer

        try:
            await asyncio.to_thread(ask)
        finally:
            stop.set()
        if answers.found or not models:
            self._catalog.outdated.note(answers.found)
        return answers

    async def watch(self, *, first: float = FIRST, pause: float = PAUSE) -> None:
        """Looks once a day at most, never while offline and never at start, until it is cancelled."""
        await asyncio.sleep(first)
        while True:
            try:
                await self._look()
            except Exception:  # a look that fails is no reason to never look again
                log.exception("The look for newer model files failed")
            await asyncio.sleep(pause)

    async def _look(self) -> None:
        since = time.time() - self._catalog.outdated.checked
        if self._settings["offline"] or 0 <= since < DAY:
            return
        if models := [model for model in self.candidates() if self._wanted(model)]:
            answers = await self.check(models)
            newer = ", ".join(sorted(name for name, outdated in answers.found.items() if outdated))
            log.info("Looked for newer files of %d models; there are some for: %s", len(models), newer or "none")

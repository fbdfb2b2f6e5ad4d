"""One attempt to start a model's process."""

from __future__ import annotations

from collections.abc import Callable

from lemonade.engines.ports import release_port, take_port
from lemonade.errors import LemonadeError, ModelLoadError
from lemonade.model import Model
from lemonade.residency.loader import Loader
from lemonade.residency.resident import Connect, Resident, StartProcess
from lemonade.residency.start import Start
from lemonade.settings import Settings

#: Seconds for a process that did not become ready to end when asked to.
GRACE = 2.0


class Launcher:
    """Sizes, plans, starts, and waits. It holds no state."""

    def __init__(
        self,
        loader: Loader,
        settings: Settings,
        start: StartProcess,
        connect: Connect,
        clock: Callable[[], float],
    ) -> None:
        self._loader = loader
        self._settings = settings
        self._start = start
        self._connect = connect
        self._clock = clock

    async def launch(self, start: Start) -> Resident:
        """The process, ready. While it is being started it is at `start.process`; after a failure it is gone.

        Raises:
            ModelLoadError: with the reason and the engine's last words; `PortLost` if another port may do.
            ModelLoadRefused, InvalidArgument: nothing was started.
        """
        began = self._clock()
        options = self._loader.sized(start.model, start.asked)
        port = take_port()
        try:
            launch = self._loader.launch(start.model, options, port)
            _go_on(start)
        except BaseException:
            release_port(port)
            raise
        start.process = process = await self._start(launch)
        try:
            _go_on(start)
            await process.wait_ready(self._settings["global_timeout"])
            _go_on(start)
            if process.exited.is_set():
                raise ModelLoadError(process.epitaph())
        except BaseException:
            await process.stop(GRACE)
            raise
        now = self._clock()
        return Resident(
            model=start.model,
            options=options,
            asked=start.asked,
            launch=launch,
            process=process,
            connection=self._connect(process),
            residency_class=start.residency_class,
            pinned=start.pinned,
            load_seconds=now - began,
            now=now,
        )


def explained(model: Model, error: Exception) -> LemonadeError:
    """The failure as those who wait for the model should read it."""
    if isinstance(error, ModelLoadError):
        return ModelLoadError(f"Failed to load model '{model.name}': {error.message}", requested=model.name)
    if isinstance(error, LemonadeError):
        return error
    return ModelLoadError(f"Failed to load model '{model.name}': internal fault: {error!r}", requested=model.name)


def _go_on(start: Start) -> None:
    if start.aborted:
        raise ModelLoadError("the start was given up")

"""The composition root: opens the services in order, serves the API, closes them in reverse."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lemonade import __version__
from lemonade.api.application import Application
from lemonade.api.guard import Guard
from lemonade.api.services import Services
from lemonade.api.table import ENDPOINTS, SOCKETS
from lemonade.catalog.catalog import Catalog
from lemonade.catalog.options import Options
from lemonade.catalog.recipes import RECIPES
from lemonade.catalog.updates import Updates
from lemonade.engines.cloud.providers import Providers
from lemonade.engines.engine import Launch
from lemonade.engines.installer import Installer
from lemonade.engines.programs import Programs
from lemonade.engines.table import Engines
from lemonade.errors import InvalidArgument, LemonadeError, ModelNotFound, UnsupportedOperation
from lemonade.hub.downloads import Downloads
from lemonade.hub.store import Store
from lemonade.listener import Listener, address, is_open_to_network, refusal
from lemonade.model import Model
from lemonade.paths import Paths, models_directory
from lemonade.residency.manager import Residency
from lemonade.settings import Settings
from lemonade.system.hardware import Hardware
from lemonade.system.logs import Logs

logger = logging.getLogger("lemonade.app")

#: Seconds for threads to come to their end when all else is closed.
THREADS_GRACE = 1.0


def run(settings: Settings, paths: Paths, *, env: Mapping[str, str] = os.environ) -> int:
    """Runs a daemon until SIGTERM, SIGINT or `/internal/shutdown`.

    Returns:
        The exit status: 0, or 1 when it could not start, after one line on stderr.
    """
    with (
        ThreadPoolExecutor(thread_name_prefix="worker") as workers,
        asyncio.Runner(loop_factory=_loop_factory()) as runner,
    ):
        runner.get_loop().set_default_executor(workers)
        try:
            status = runner.run(serve(settings, paths, env=env))
        except LemonadeError as error:
            print(f"lemonade: {error.message}", file=sys.stderr)
            status = 1
        workers.shutdown(wait=False, cancel_futures=True)
        _let_go(status)
    return status


def _let_go(status: int) -> None:
    """Ends the program if a thread still waits for a hub: everything is stored by now, and nobody waits for that."""
    until = time.monotonic() + THREADS_GRACE
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(max(0.0, until - time.monotonic()))
            if thread.is_alive():
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)


async def serve(
    settings: Settings,
    paths: Paths,
    *,
    env: Mapping[str, str] = os.environ,
    on_ready: Callable[[str], None] | None = None,
) -> int:
    """The daemon as a coroutine, for a program that embeds it.

    Args:
        on_ready: called with the address once requests are taken; prints it if None.

    Raises:
        ConfigError: the address cannot be listened on.
    """
    with Logs.open(settings, paths) as logs:
        for problem in settings.problems:
            logger.warning(problem)
        guard = Guard(settings, env)
        logs.hide(guard.secrets)
        async with open_services(settings, paths, env=env) as services:
            application = Application(ENDPOINTS, services, guard, SOCKETS)
            listener = Listener(application, settings["host"], settings["port"], _second_port(settings))
            services.stop = listener.stop
            services.websocket_port = lambda: listener.second_port
            services.log = logs.ring
            _constrain_address(settings)
            settings.subscribe(lambda changed: _follow(listener, settings, changed))
            if is_open_to_network(settings["host"]) and not guard.secrets:
                logger.warning(
                    "Every machine on the network can use this daemon. LEMONADE_API_KEY would ask for a key."
                )
            with _signals(listener.stop):
                where = address(settings["host"], settings["port"])
                asyncio.get_running_loop().call_soon(_announce, where, on_ready)
                # What is here now stays: the collector need not walk through it again and again.
                gc.collect()
                gc.freeze()
                await listener.run_until_stopped()
    return 0


@contextlib.asynccontextmanager
async def open_services(
    settings: Settings, paths: Paths, *, env: Mapping[str, str] = os.environ
) -> AsyncIterator[Services]:
    """The services of one daemon, closed again at the end."""
    store = Store(models_directory(env, settings["models_dir"]))
    hardware = Hardware.detect()
    programs = Programs(paths.cache / "bin")
    engines = Engines(settings, programs, hardware)
    providers = Providers(settings, env)
    catalog = Catalog(
        paths=paths,
        settings=settings,
        hardware=hardware,
        store=store,
        unsupported=engines.unsupported,
        check=engines.check,
        cloud=providers,
    )
    options = Options(catalog, settings, hardware, engines.preferred, engines.check)
    downloads = Downloads(store, offline=lambda: bool(settings["offline"]), arrived=catalog.arrived)
    installer = Installer(
        engines=engines, programs=programs, downloads=downloads, settings=settings, changed=catalog.changed
    )
    loader = Loader(
        store=store, catalog=catalog, options=options, downloads=downloads, engines=engines, installer=installer
    )
    updates = Updates(catalog, store, downloads, settings, functools.partial(_is_looked_for, options, settings))
    residency = Residency(loader, settings, env=env)
    settings.constrain("llamacpp.backend", lambda value: engines.refusal("llamacpp", value))
    settings.constrain("sdcpp.backend", lambda value: engines.refusal("sd-cpp", value))
    _constrain_arguments(settings, engines)
    services = Services(
        paths=paths,
        settings=settings,
        store=store,
        catalog=catalog,
        options=options,
        downloads=downloads,
        updates=updates,
        engines=engines,
        installer=installer,
        hardware=hardware,
        residency=residency,
        providers=providers,
        stop=lambda: None,
        endpoints=ENDPOINTS,
        sockets=SOCKETS,
    )
    watchers = [asyncio.create_task(catalog.watch()), asyncio.create_task(updates.watch())]
    providers.start()
    try:
        yield services
    finally:
        for watcher in watchers:
            watcher.cancel()
        await asyncio.gather(residency.close(), downloads.close(), providers.close(), *watchers, return_exceptions=True)


class Loader:
    """What residency asks of the floors below it."""

    def __init__(
        self,
        *,
        store: Store,
        catalog: Catalog,
        options: Options,
        downloads: Downloads,
        engines: Engines,
        installer: Installer,
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._options = options
        self._downloads = downloads
        self._engines = engines
        self._installer = installer

    async def fetch(self, model: Model, options: Mapping[str, Any]) -> None:
        if model.recipe == "cloud":
            raise UnsupportedOperation(f"'{model.name}' runs at a cloud provider, which cannot do this.", param="model")
        if not self._store.is_downloaded(model):
            await self._downloads.ensure(model)
            self._catalog.changed()
        if missing := self._installer.missing(model.recipe, options):
            job = self._installer.install(model.recipe, missing.name)
            if job is not None:
                await job.wait()

    def options(self, model: Model, request: Mapping[str, Any]) -> dict[str, Any]:
        return self._options.resolve(model, request)

    def check(self, model: Model, options: Mapping[str, Any]) -> None:
        self._options.check_memory(model, options)

    def device(self, model: Model, options: Mapping[str, Any]) -> str:
        if missing := self._installer.missing(model.recipe, options):
            return missing.devices[0]
        return self._engines.get(model.recipe).device(options)

    def sized(self, model: Model, options: Mapping[str, Any]) -> dict[str, Any]:
        if "ctx_size" not in options:
            return dict(options)
        return {**options, "ctx_size": self._options.context_size(model, options)}

    def launch(self, model: Model, options: Mapping[str, Any], port: int) -> Launch:
        # A load may have waited for room, for minutes.
        if self._catalog.lookup(model.canonical) is None or not self._store.is_downloaded(model):
            raise ModelNotFound(f"'{model.name}' was deleted while it was being loaded.", requested=model.name)
        files = {role: path for role, path in self._store.locate(model).items() if path is not None}
        return self._engines.get(model.recipe).plan(model, files, options, alias=model.name, port=port)


def _is_looked_for(options: Options, settings: Settings, model: Model) -> bool:
    chosen = options.resolve(model).get("auto_update")
    return bool(settings["auto_check_model_updates"] if chosen is None else chosen)


def _announce(where: str, on_ready: Callable[[str], None] | None) -> None:
    logger.info("Lemonade %s listens on %s", __version__, where)
    if on_ready is not None:
        on_ready(where)
    else:
        print(f"Lemonade {__version__} is ready at {where}", flush=True)


def _constrain_address(settings: Settings) -> None:
    """Refuses an address that cannot be had while it can still be refused, before it is saved."""
    settings.constrain(
        "port", lambda port: None if port == settings["port"] else refusal(str(settings["host"]), int(port))
    )
    settings.constrain("host", lambda host: None if host == settings["host"] else refusal(str(host), 0))


def _constrain_arguments(settings: Settings, engines: Engines) -> None:
    """Refuses arguments that no engine could be started with; those in `llamacpp.cpu_args` are for one backend."""

    def constrain(key: str, recipe: str, section: str) -> None:
        backend = key.removeprefix(f"{section}.").removesuffix("args").removesuffix("_")
        fixed = {f"{recipe}_backend": backend} if backend else {}

        def check(value: Any) -> str | None:
            try:
                engines.check(recipe, {**fixed, f"{section}_args": value})
            except InvalidArgument as error:
                return f"cannot hold: {error.message.rstrip('.?')}"
            return None

        settings.constrain(key, check, final=True)

    for engine in engines.all():
        section = RECIPES[engine.recipe].section
        for key in settings:
            if key.startswith(f"{section}.") and key.endswith("args"):
                constrain(key, engine.recipe, section)


def _follow(listener: Listener, settings: Settings, changed: Mapping[str, Any]) -> None:
    if not changed.keys().isdisjoint({"host", "port", "websocket_port"}):
        listener.move(settings["host"], settings["port"], _second_port(settings))


def _second_port(settings: Settings) -> int:
    """The setting as a port; 0 is any that is free."""
    wanted = settings["websocket_port"]
    return 0 if wanted == "auto" else int(wanted)


@contextlib.contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    """Calls `stop` on SIGTERM and SIGINT."""
    wanted = (signal.SIGTERM, signal.SIGINT)
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as stack:
        for one in wanted:
            try:
                loop.add_signal_handler(one, stop)
                stack.callback(loop.remove_signal_handler, one)
            except (NotImplementedError, RuntimeError, ValueError):
                # Windows has no signal handlers on the loop. An embedding program's thread may set none at all.
                with contextlib.suppress(ValueError):
                    before = signal.signal(one, lambda *_: loop.call_soon_threadsafe(stop))
                    stack.callback(signal.signal, one, before)
        yield


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop

"""The providers of this daemon: what is installed, their keys, and the models that they are known to have.

Keys live in the environment or in this process, and nowhere else. Models are discovered in the background, never while
somebody waits for something else.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import msgspec

from lemonade.engines.cloud.connection import CloudConnection
from lemonade.engines.cloud.discovery import entries, models
from lemonade.engines.cloud.failures import AuthConflict, ProviderNotFound, ProviderUnreachable
from lemonade.engines.cloud.provider import Provider, check_key, is_key_variable, key_variables, read
from lemonade.errors import InvalidArgument, LemonadeError, Offline
from lemonade.model import Model
from lemonade.settings import Settings
from lemonade.system.logs import secrets

logger = logging.getLogger("lemonade.cloud")

#: Seconds that a provider has for its list. Source: the behaviour of the original.
DISCOVERY = 15.0
#: Most bytes of a list that are read.
MAX_LIST = 16 * 1024 * 1024
#: Seconds after which a list is asked for again, once somebody looks at the models; sooner after a failure.
FRESH = 600.0
RETRY = 30.0
#: The version of Anthropic's API that is spoken.
ANTHROPIC_VERSION = "2023-06-01"

_NOTHING: Mapping[str, Model] = MappingProxyType({})


@dataclass(slots=True)
class _State:
    """What is known of one provider while the daemon runs."""

    provider: Provider
    connection: CloudConnection
    models: Mapping[str, Model] = field(default_factory=lambda: _NOTHING)
    #: Why the last discovery found nothing; empty when it did.
    problem: str = ""
    #: The clock's time at which the list is worth asking for again; infinite while nobody may ask.
    due: float = 0.0
    task: asyncio.Task[None] | None = None


class Providers:
    """All providers. Use it on the loop only.

    Args:
        env: where keys are looked for first.
    """

    def __init__(self, settings: Settings, env: Mapping[str, str] = os.environ) -> None:
        self._settings = settings
        self._env = _keys_in(env)
        self._keys: dict[str, str] = {}
        self._states: dict[str, _State] = {}
        self._models: Mapping[str, Model] = _NOTHING
        self._closing: set[asyncio.Task[None]] = set()
        #: Grows with every change of `models`.
        self.version = 0
        secrets.add(*self._env.values())
        self._read()
        settings.subscribe(self._settings_changed)

    # What there is.

    def all(self) -> list[Provider]:
        """The providers, in the order of their names."""
        return [self._states[name].provider for name in sorted(self._states)]

    def get(self, name: str) -> Provider:
        """Raises ProviderNotFound."""
        return self._state(name).provider

    def models(self) -> Mapping[str, Model]:
        """The models that are known, by name. A look at them has a list that has grown old asked for again, beside."""
        if self._states:
            now = time.monotonic()
            for state in self._states.values():
                if state.due <= now and state.task is None:
                    self._begin(state)
        return self._models

    async def settle(self, model: str) -> None:
        """Waits for the first list of the provider that a model's name begins with, as after a start of the daemon."""
        state = self._states.get(model.partition(".")[0])
        if state is not None and not state.models:
            self.models()
            if state.task is not None:
                await asyncio.wait({state.task})

    def problem(self, name: str) -> str:
        """Why the last discovery of a provider found nothing; empty when it did."""
        return self._state(name).problem

    def hint(self, name: str) -> str:
        """What a person should know who asked for a model of this name and did not get it; mostly nothing."""
        state = self._states.get(name.partition(".")[0])
        if state is None or not name.startswith(f"{state.provider.name}."):
            return ""
        if self.key(state.provider.name) is None:
            return self.no_key(state.provider)
        return f"The cloud provider '{state.provider.name}' does not list it. {state.problem}".strip()

    def connection(self, name: str) -> CloudConnection:
        """The way to a provider.

        Raises:
            ProviderNotFound: it is not installed.
            Offline: the daemon must not use the network.
        """
        state = self._state(name)
        if self._settings["offline"]:
            raise Offline(f"The daemon is in offline mode, so the cloud provider '{name}' is not asked.")
        return state.connection

    # Keys.

    def key(self, name: str) -> str | None:
        """A provider's key: that of the environment, else the one that was given while running."""
        found = self._from_environment(name)
        return found[1] if found else self._keys.get(name)

    def auth_state(self, name: str) -> dict[str, bool]:
        """Which keys there are, as the wire shows it."""
        return {"env_var_set": self._from_environment(name) is not None, "runtime_key_set": name in self._keys}

    @staticmethod
    def no_key(provider: Provider) -> str:
        """What a person has to do who uses a provider that has no key."""
        return (
            f"No API key for cloud provider '{provider.name}'. Set the {provider.variable} environment variable or "
            "POST /v1/cloud/auth."
        )

    async def authenticate(self, name: str, key: str) -> int:
        """Keeps a key for as long as the daemon runs, and discovers what can be had with it.

        Returns:
            How many models there are.

        Raises:
            ProviderNotFound, InvalidArgument: the name, the key.
            AuthConflict: the environment has a key already.
        """
        state = self._state(name)
        key = check_key(key)
        if found := self._from_environment(name):
            raise AuthConflict(
                f"The key of '{name}' comes from {found[0]}, which counts more. Unset it to give another one.",
                param="api_key",
                details={"env_var": found[0]},
            )
        self._keep(name, key)
        return await self._discover(state)

    def clear(self, name: str) -> bool:
        """Forgets a key that was given while running; whether there was one. Without another one, the provider's models
        go as well."""
        had = self._keys.pop(name, None) is not None
        state = self._states.get(name)
        if had and state is not None and self.key(name) is None:
            self._halt(state)
            state.due = float("inf")
            state.problem = ""
            self._found(state, _NOTHING)
        return had

    # Installing.

    async def install(self, entry: Mapping[str, Any], key: str | None = None) -> tuple[Provider, int]:
        """Keeps a provider in the configuration, or changes the one of that name, and discovers its models.

        Args:
            entry: `name`, `base_url` and so on; what is absent stays as it was.
            key: for as long as the daemon runs.

        Returns:
            The provider, and how many models it has.

        Raises:
            InvalidArgument, InsecureHTTP: a field.
            StorageError, OSError: the configuration cannot be written.
        """
        if key is not None:
            key = check_key(key)
        provider = self.change(entry)
        if key is not None:
            self._keep(provider.name, key)
        return provider, await self._discover(self._state(provider.name))

    def change(self, entry: Mapping[str, Any]) -> Provider:
        """As `install`, without a discovery."""
        name = entry.get("name")
        before = self._states.get(name) if isinstance(name, str) else None
        kept = msgspec.to_builtins(before.provider) if before else {}
        provider = read({**kept, **{field: value for field, value in entry.items() if value is not None}})
        if before is None or before.provider != provider:
            others = [each.stored() for each in self.all() if each.name != provider.name]
            self._store([*others, provider.stored()])
        return provider

    def uninstall(self, name: str) -> int:
        """Removes a provider and its key; how many models went with it.

        Raises:
            ProviderNotFound: it is not installed.
            StorageError, OSError: the configuration cannot be written.
        """
        evicted = len(self._state(name).models)
        self._store([each.stored() for each in self.all() if each.name != name])
        self._keys.pop(name, None)
        return evicted

    def start(self) -> None:
        """Discovers the models of all providers, in the background."""
        self.models()

    async def close(self) -> None:
        """Ends what runs in the background, and all connections."""
        for state in list(self._states.values()):
            self._drop(state)
        if self._closing:
            await asyncio.wait(self._closing, timeout=2)

    # Inside.

    def _state(self, name: str) -> _State:
        if name not in self._states:
            known = ", ".join(each.name for each in self.all()) or "none"
            raise ProviderNotFound(
                f"Cloud provider '{name[:64]}' is not installed; installed are: {known}.", param="provider"
            )
        return self._states[name]

    def _from_environment(self, name: str) -> tuple[str, str] | None:
        for variable in key_variables(name):
            if variable in self._env:
                return variable, self._env[variable]
        return None

    def _keep(self, name: str, key: str) -> None:
        secrets.add(key)
        self._keys[name] = key

    def _store(self, stored: list[dict[str, Any]]) -> None:
        self._settings.change({"cloud_providers": stored}, persist=True, dedicated=True)

    def _settings_changed(self, changes: Mapping[str, Any]) -> None:
        if "cloud_providers" in changes:
            self._read()
        if "offline" in changes:
            for state in self._states.values():
                state.due = min(state.due, 0.0) if state.due != float("inf") else state.due

    def _read(self) -> None:
        """Follows the setting: providers that are new, changed or gone."""
        wanted: dict[str, Provider] = {}
        for number, entry in enumerate(self._settings["cloud_providers"]):
            try:
                provider = read(entry)
            except LemonadeError as error:
                logger.warning("cloud_providers[%d] is left out until it is corrected: %s", number, error.message)
                continue
            wanted[provider.name] = provider
        for name, state in list(self._states.items()):
            if wanted.get(name) != state.provider:
                del self._states[name]
                self._drop(state)
        for name, provider in wanted.items():
            if name not in self._states:
                connection = CloudConnection(provider, lambda name=name: self.key(name))  # type: ignore[misc]
                self._states[name] = _State(provider, connection)
        self._collect()

    def _drop(self, state: _State) -> None:
        self._halt(state)
        try:
            task = asyncio.get_running_loop().create_task(state.connection.close())
        except RuntimeError:
            return  # without a loop nothing was opened
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    @staticmethod
    def _halt(state: _State) -> None:
        if state.task is not None:
            state.task.cancel()
            state.task = None

    def _begin(self, state: _State) -> asyncio.Task[None]:
        state.due = time.monotonic() + RETRY
        state.task = task = asyncio.get_running_loop().create_task(self._ask(state))

        def ended(_: asyncio.Task[None]) -> None:
            if state.task is task:
                state.task = None

        task.add_done_callback(ended)
        return task

    async def _discover(self, state: _State) -> int:
        """Asks now, whatever is known. It goes on when the caller leaves."""
        self._halt(state)
        await asyncio.wait({self._begin(state)})
        return len(state.models)

    async def _ask(self, state: _State) -> None:
        name = state.provider.name
        if self._settings["offline"]:
            state.problem = "The daemon is in offline mode."
            return
        try:
            async with asyncio.timeout(DISCOVERY):
                found = await self._list(state)
        except TimeoutError:
            self._failed(state, f"It did not list its models within {DISCOVERY:.0f} seconds.")
        except ProviderUnreachable as error:
            self._failed(state, error.message)
        except ValueError as error:
            # It answered: what it had before, it does not have any more.
            self._failed(state, secrets.hide(f"Its list of models cannot be had: {error}."))
            state.due = time.monotonic() + FRESH
            self._found(state, _NOTHING)
        else:
            state.problem = "" if found else "It lists no model that chats."
            state.due = time.monotonic() + FRESH
            logger.info("The cloud provider %s has %d models", name, len(found))
            self._found(state, found)

    @staticmethod
    def _failed(state: _State, problem: str) -> None:
        if problem != state.problem:
            logger.warning("The models of %s cannot be discovered: %s", state.provider.name, problem)
        state.problem = problem

    async def _list(self, state: _State) -> dict[str, Model]:
        provider = state.provider
        path, headers = "models", {}
        if provider.wire_format == "anthropic":
            path, headers = "models?limit=1000", {"anthropic-version": ANTHROPIC_VERSION}
        reply = await state.connection.request("GET", path, headers=headers)
        try:
            if reply.status in (401, 403) and self.key(provider.name) is None:
                raise ValueError(f"{self.no_key(provider)} It answered {reply.status}")
            if 300 <= reply.status < 400:
                raise ValueError("it answers with a redirect, which is not followed; correct base_url")
            if reply.status != 200:
                raise ValueError(f"it answered {reply.status}")
            body = await reply.read(MAX_LIST)
        finally:
            await reply.close()
        try:
            rows = entries(msgspec.json.decode(body))
        except (msgspec.DecodeError, RecursionError):
            kind = reply.headers.get("content-type", "")[:80]
            raise ValueError(f"it is no JSON ({kind or 'of no type'})") from None
        return models(provider, rows)

    def _found(self, state: _State, found: Mapping[str, Model]) -> None:
        if found != state.models:
            state.models = found
            self._collect()

    def _collect(self) -> None:
        every = {name: model for state in self._states.values() for name, model in state.models.items()}
        if every != self._models:
            self._models = every
            self.version += 1


def _keys_in(env: Mapping[str, str]) -> dict[str, str]:
    """The keys in an environment, by their variables."""
    found = {}
    for variable, value in env.items():
        if is_key_variable(variable) and value.strip():
            try:
                found[variable] = check_key(value)
            except InvalidArgument:
                logger.warning("%s is overlooked: a key is printable ASCII characters without spaces", variable)
    return found

"""The configuration: layers, the origin of each value, and a file that stays small and valid.

Layers, the later one wins: built-in defaults, `/usr/share/lemonade/defaults.json`, the file that
`LEMONADE_DEFAULTS_PATH` names, `config.json`, the environment, the command line, changes made while running.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lemonade.errors import ConfigError, StorageError
from lemonade.settings_table import SECTIONS, SETTINGS, Check

SYSTEM_DEFAULTS = Path("/usr/share/lemonade/defaults.json")

#: Settings that the environment may give, with the variable's name.
ENVIRONMENT = {
    "LEMONADE_HOST": "host",
    "LEMONADE_PORT": "port",
    "LEMONADE_ALLOWED_ORIGINS": "allowed_origins",
    "LEMONADE_OFFLINE": "offline",
}

Listener = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Layer:
    """Values from one place. `origin` is what `lemonade config --show-origin` prints."""

    origin: str
    values: dict[str, Any]


class Settings:
    """All layers, resolved. Keys are dotted (`llamacpp.backend`).

    Reading never fails for a key of the table; an unknown key is a KeyError, which is the programmer's mistake.
    """

    def __init__(self, layers: list[Layer], file: Path | None = None) -> None:
        self._layers = [Layer("default", {key: setting.default for key, setting in SETTINGS.items()}), *layers]
        self._runtime: Layer = Layer("changed while running", {})
        self._file = file
        self._values: dict[str, Any] = {}
        self._checks: dict[str, Check] = {}
        self._final_checks: dict[str, Check] = {}
        self._listeners: list[Listener] = []
        #: What was wrong with a layer, for the log: a value that cannot hold, a file that is no JSON.
        self.problems: list[str] = []
        self._drop_bad_values()
        self._resolve()

    @classmethod
    def open(
        cls, config_dir: Path, env: Mapping[str, str] = os.environ, flags: Mapping[str, Any] | None = None
    ) -> Settings:
        """Reads the layers. A `config.json` that is no JSON object is set aside as `config.json.corrupted`.

        Raises:
            ConfigError: a variable of the environment or a flag has a value that cannot hold.
        """
        problems: list[str] = []
        layers = [_read(SYSTEM_DEFAULTS, problems)]
        if path := env.get("LEMONADE_DEFAULTS_PATH"):
            layers.append(_read(Path(path), problems))
        file = config_dir / "config.json"
        layers.append(_read(file, problems, set_aside=True))
        for variable, key in ENVIRONMENT.items():
            if value := env.get(variable):
                layers.append(Layer(variable, {key: _from_text(key, value, variable)}))
        given = {key: value for key, value in (flags or {}).items() if value is not None}
        if given:
            for key, value in given.items():
                _refuse(key, value, f"--{key}")
            layers.append(Layer("command line", given))
        settings = cls(layers, file)
        settings.problems[:0] = problems
        return settings

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def origin(self, key: str) -> str:
        """Where the value in force comes from."""
        return self._origins[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def snapshot(self) -> dict[str, Any]:
        """All values, nested by section, as `/internal/config` shows them."""
        return nest(self._values)

    @staticmethod
    def defaults() -> dict[str, Any]:
        """The built-in values, nested."""
        return nest({key: setting.default for key, setting in SETTINGS.items()})

    def constrain(self, key: str, check: Check, *, final: bool = False) -> None:
        """Adds a check that only a higher floor can make, such as which backends this machine has.

        Args:
            final: whether other settings matter to the check: it reads those that the change would leave.
        """
        (self._final_checks if final else self._checks)[key] = check

    def subscribe(self, listener: Listener) -> None:
        """Calls `listener` with `{key: new value}` after each change of at least one value."""
        self._listeners.append(listener)

    def change(self, changes: Mapping[str, Any], *, persist: bool, dedicated: bool = False) -> dict[str, Any]:
        """Validates all of `changes` (nested, dotted or flat keys), then applies all of them or none.

        Args:
            persist: also writes them to `config.json`, where values equal to the layers below are left out.
            dedicated: the caller is the route that a key is reserved for.

        Returns:
            The normalised changes, nested.

        Raises:
            ConfigError: with `param` naming the key.
            StorageError: `config.json` holds something else than settings.
            OSError: it cannot be written.
        """
        flat = self._normalise(changes, dedicated)
        before = dict(self._values)
        self._check_finally(flat)
        if persist:
            self._write(flat)
        else:
            self._runtime.values.update(flat)
        self._resolve()
        really = {key: value for key, value in self._values.items() if before[key] != value}
        if really:
            for listener in self._listeners:
                listener(really)
        return nest(flat)

    def _normalise(self, changes: Mapping[str, Any], dedicated: bool) -> dict[str, Any]:
        if not changes:
            raise ConfigError("Nothing to set: give an object with at least one key.")
        flat: dict[str, Any] = {}
        for key, value in flatten(changes):
            name = _promote(key)
            if name not in SETTINGS:
                raise ConfigError(f"Unknown config key: '{key}'", param=key)
            if name in flat and flat[name] != value:
                raise ConfigError(f"'{name}' is given twice with different values.", param=name)
            if not SETTINGS[name].settable and not dedicated:
                raise ConfigError(f"'{name}' cannot be set here.", param=name)
            _refuse(name, value, name)
            if reason := self._checks.get(name, lambda _: None)(value):
                raise ConfigError(f"'{name}' {reason}.", param=name)
            flat[name] = value
        return flat

    def _check_finally(self, flat: Mapping[str, Any]) -> None:
        before = self._values
        self._values = {**before, **flat}
        try:
            for name, value in flat.items():
                if reason := self._final_checks.get(name, lambda _: None)(value):
                    raise ConfigError(f"'{name}' {reason}.", param=name)
        finally:
            self._values = before

    def _write(self, flat: Mapping[str, Any]) -> None:
        assert self._file is not None, "persistent changes need a file"
        # The file is read anew, so that a hand edit made while running is kept.
        try:
            stored = _load(self._file) or {}
        except ValueError as error:
            # To write would lose what somebody is in the middle of typing.
            raise StorageError(f"{self._file} cannot be read ({error}). Mend it, or move it away.") from error
        values = dict(flatten(stored))
        values.update(flat)
        below = {key: setting.default for key, setting in SETTINGS.items()}
        for layer in self._layers[1:]:
            if layer.origin == str(self._file):
                break
            below.update(layer.values)
        sparse = {key: value for key, value in values.items() if key not in below or below[key] != value}
        write_json(self._file, nest(sparse))
        known = {_promote(key): value for key, value in sparse.items() if _promote(key) in SETTINGS}
        # What a hand edit got wrong is as little obeyed now as at the start.
        known = {key: value for key, value in known.items() if SETTINGS[key].check(value) is None}
        mine = next(index for index, layer in enumerate(self._layers) if layer.origin == str(self._file))
        self._layers[mine] = Layer(str(self._file), known)
        for key, value in flat.items():
            self._runtime.values.pop(key, None)
            # What is said while running outranks the environment and the command line until the next start.
            if any(key in layer.values for layer in self._layers[mine + 1 :]):
                self._runtime.values[key] = value

    def _drop_bad_values(self) -> None:
        for layer in self._layers[1:]:
            for key in list(layer.values):
                setting = SETTINGS.get(key)
                reason = setting.check(layer.values[key]) if setting else "is not a known setting"
                if reason:
                    self.problems.append(f"{layer.origin}: '{key}' {reason}; it is ignored")
                    del layer.values[key]

    def _resolve(self) -> None:
        self._values = {}
        self._origins: dict[str, str] = {}
        for layer in (*self._layers, self._runtime):
            for key, value in layer.values.items():
                self._values[key] = value
                self._origins[key] = layer.origin


def flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys of a nested object. A key of the table whose value is an object stays whole."""
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and name not in SETTINGS:
            yield from flatten(value, f"{name}.")
        else:
            yield name, value


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The reverse of `flatten`."""
    tree: dict[str, Any] = {}
    for key, value in flat.items():
        *parents, leaf = key.split(".")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = value
    return tree


def write_json(path: Path, value: Any) -> None:
    """Writes `value` so that a reader sees the old or the new file, whole, whatever happens in between."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        # Half of a surrogate pair, which JSON can write and UTF-8 cannot, is written as JSON does: \ud800.
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            json.dump(value, file, indent=2, ensure_ascii=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read_json_object(path: Path, problems: list[str], *, set_aside: bool = False) -> dict[str, Any]:
    """The object in a JSON file; `{}` when there is none. A file that holds anything else is reported, and renamed
    to `NAME.corrupted` when `set_aside` is true, so that the next write does not lose what a person had typed."""
    try:
        loaded = _load(path)
    except (ValueError, OSError) as error:
        problems.append(f"{path} cannot be read ({error})")
        if set_aside and isinstance(error, ValueError):
            aside = path.with_name(f"{path.name}.corrupted")
            path.replace(aside)
            problems[-1] += f"; it was set aside as {aside.name}"
        return {}
    return loaded or {}


def _read(path: Path, problems: list[str], *, set_aside: bool = False) -> Layer:
    tree = read_json_object(path, problems, set_aside=set_aside)
    return Layer(str(path), {_promote(key): value for key, value in flatten(tree) if not key.startswith("_")})


def _load(path: Path) -> dict[str, Any] | None:
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors on Windows begin with a byte order mark
    except FileNotFoundError:
        return None
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("it must hold a JSON object")
    return value


def _promote(key: str) -> str:
    """`llamacpp_backend` is the flat spelling of `llamacpp.backend`."""
    section, underscore, rest = key.partition("_")
    if underscore and key not in SETTINGS and section in SECTIONS and f"{section}.{rest}" in SETTINGS:
        return f"{section}.{rest}"
    return key


def _refuse(key: str, value: Any, name: str) -> None:
    if reason := SETTINGS[key].check(value):
        raise ConfigError(f"'{name}' {reason}, not {value!r}.", param=key)


def _from_text(key: str, text: str, name: str) -> Any:
    default = SETTINGS[key].default
    value: Any = text
    if isinstance(default, bool):
        value = text.strip().lower() not in ("0", "false", "no", "off")
    elif isinstance(default, int):
        try:
            value = int(text)
        except ValueError:
            raise ConfigError(f"{name} must be a whole number, not {text!r}.", param=key) from None
    _refuse(key, value, name)
    return value

"""Where the daemon keeps things.

Precedence, per directory: the command line, `LEMONADE_…`, what a service manager sets, the platform's own place.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lemonade.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Paths:
    """The daemon's directories. None is created by naming it; writers create what they need.

    Attributes:
        cache: what can be made again: partial downloads, engine binaries, aliases.
        config: what the user said: settings, own models, saved options.
        runtime: sockets and the daemon's own record while it runs (private to the user).
        models: the model cache in Hugging Face's layout, shared with other tools.
    """

    cache: Path
    config: Path
    runtime: Path
    models: Path

    @classmethod
    def find(
        cls, env: Mapping[str, str] = os.environ, *, cache: Path | None = None, config: Path | None = None
    ) -> Paths:
        """The directories for this user and environment.

        A cache directory on the command line without a config directory serves for both (a portable installation).

        Raises:
            ConfigError: a variable names no folder.
        """
        import platformdirs  # 5 ms; the CLI's --help does not need it

        if cache is not None and config is None:
            config = cache
        cache = cache or _first(env, "LEMONADE_CACHE_DIR", "CACHE_DIRECTORY")
        cache = cache or Path(platformdirs.user_cache_dir("lemonade", appauthor=False))
        config = config or _first(env, "LEMONADE_CONFIG_DIR", "STATE_DIRECTORY")
        config = config or Path(platformdirs.user_config_dir("lemonade", appauthor=False))
        runtime = _first(env, "RUNTIME_DIRECTORY") or cache / "run"
        return cls(cache=cache, config=config, runtime=runtime, models=models_directory(env))


def models_directory(env: Mapping[str, str] = os.environ, configured: str = "auto") -> Path:
    """The Hugging Face cache: the setting `models_dir`, `HF_HUB_CACHE`, `$HF_HOME/hub`, or the library's default.

    Raises:
        ConfigError: a variable names no folder.
    """
    if configured not in ("", "auto"):
        return Path(configured).expanduser()
    if hub := _first(env, "HF_HUB_CACHE"):
        return hub
    if home := _first(env, "HF_HOME"):
        return home / "hub"
    base = _first(env, "XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return base / "huggingface" / "hub"


def _first(env: Mapping[str, str], *names: str) -> Path | None:
    for name in names:
        if value := env.get(name):
            try:
                return Path(value).expanduser()
            except RuntimeError:
                raise ConfigError(f"{name} names the home of somebody who is not there: {value}") from None
    return None

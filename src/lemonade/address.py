"""Where a daemon listens, for those who want to reach one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from lemonade.errors import ConfigError
from lemonade.settings import SYSTEM_DEFAULTS, flatten, read_json_object
from lemonade.settings_table import SETTINGS

#: Ways to say that a daemon listens on all addresses.
EVERYWHERE = frozenset({"", "*", "0.0.0.0", "::"})


@dataclass(frozen=True, slots=True)
class Address:
    """Where a daemon listens."""

    host: str
    port: int
    scheme: str = "http"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether it can only be this machine."""
        return self.scheme == "http" and (
            self.host == "localhost" or self.host.startswith("127.") or self.host == "::1"
        )

    @classmethod
    def find(
        cls,
        host: str | None = None,
        port: int | None = None,
        *,
        env: Mapping[str, str] = os.environ,
        config: Path | None = None,
    ) -> Address:
        """The daemon to talk to: what was said, else `LEMONADE_HOST` and `LEMONADE_PORT`, else `config.json` in the
        folder `config`, else the built-in default.

        Args:
            host: a name, an address, or a URL, whose scheme and port then hold (`https://box.lan`).

        Raises:
            ConfigError: the text names no address.
        """
        host = host or env.get("LEMONADE_HOST")
        scheme = "http"
        if host and "://" in host:
            scheme, host, in_url = _from_url(host)
            port = port or in_url
        port = port or _port(env.get("LEMONADE_PORT"))
        if host is None or port is None:
            configured_host, configured_port = _configured(config)
            host, port = host or configured_host, port or configured_port
        host = host.strip("[]")
        if any(not mark.isprintable() or mark in " /?#@" for mark in host):
            raise ConfigError(f"{host!r} is no address; give a host name or a URL such as http://localhost:13305.")
        # A daemon that listens everywhere is reached over loopback.
        return cls("localhost" if host in EVERYWHERE else host, port, scheme)


def _from_url(url: str) -> tuple[str, str, int]:
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or scheme not in ("http", "https") or port == 0:
        raise ConfigError(f"{url!r} is no address; give a host name or a URL such as http://localhost:13305.")
    return scheme, host, port or (443 if scheme == "https" else 80)


def _port(text: str | None) -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 65536:
        raise ConfigError(f"LEMONADE_PORT must be a port from 1 to 65535, not {text!r}.")
    return int(text)


def _configured(folder: Path | None) -> tuple[str, int]:
    found = {key: SETTINGS[key].default for key in ("host", "port")}
    for file in (SYSTEM_DEFAULTS, folder / "config.json" if folder else None):
        values = dict(flatten(read_json_object(file, []))) if file else {}
        for key in found:
            if key in values and SETTINGS[key].check(values[key]) is None:
                found[key] = values[key]
    return str(found["host"]), int(found["port"])

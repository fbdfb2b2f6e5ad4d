"""What people copy from a hub's web page, read as a repository: `https://huggingface.co/OWNER/NAME/blob/main/FILE`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

import msgspec

from lemonade.errors import InvalidArgument

#: The hubs' hosts, and the registries behind them.
HOSTS = {
    "huggingface.co": "huggingface",
    "www.huggingface.co": "huggingface",
    "hf.co": "huggingface",
    "modelscope.cn": "modelscope",
    "www.modelscope.cn": "modelscope",
    "modelscope.ai": "modelscope",
    "www.modelscope.ai": "modelscope",
}
#: Variables that name a mirror of a registry.
MIRRORS = {"HF_ENDPOINT": "huggingface", "MODELSCOPE_ENDPOINT": "modelscope"}

#: Parts of a page's address between the repository and a file's path; a branch follows.
_PAGES = ("blob", "resolve", "tree", "raw")


class Address(msgspec.Struct, frozen=True):
    """A repository on a hub, and the file or quantisation in it that the address names (else empty)."""

    registry: str
    repository: str
    variant: str = ""

    @property
    def checkpoint(self) -> str:
        return f"{self.repository}:{self.variant}" if self.variant else self.repository


def read(text: str, env: Mapping[str, str] = os.environ) -> Address | None:
    """The address in `text`, None if it is none: `OWNER/NAME:VARIANT` and local paths are not.

    Raises:
        InvalidArgument: it is an address, but of no hub, or of no repository.
    """
    text = text.strip()
    hosts = HOSTS | {_host(env[name]): registry for name, registry in MIRRORS.items() if env.get(name)}
    scheme, separator, _ = text.partition("://")
    if not separator:
        if text.partition("/")[0].lower() not in HOSTS:
            return None
        text = f"https://{text}"
    elif scheme.lower() not in ("http", "https"):
        raise InvalidArgument(f"'{text[:200]}' is no web address of a model.", param="checkpoint")
    host = _host(text)
    registry = hosts.get(host) if host else None
    if registry is None:
        raise InvalidArgument(
            f"'{text[:200]}' is on none of the hubs that models are pulled from (huggingface.co, modelscope.cn). "
            "Give OWNER/NAME:VARIANT.",
            param="checkpoint",
        )
    names = [unquote(name) for name in urlsplit(text).path.strip("/").split("/")]
    if names[0] == "models" and registry == "modelscope":
        names = names[1:]
    if len(names) < 2 or not all(names[:2]):
        raise InvalidArgument(f"'{text[:200]}' names no repository; it must read …/OWNER/NAME.", param="checkpoint")
    owner, (name, _, variant) = names[0], names[1].partition(":")
    return Address(registry, f"{owner}/{name}", variant or _file(registry, names[2:]))


def _file(registry: str, rest: list[str]) -> str:
    if len(rest) > 2 and rest[0] in _PAGES and rest[0] != "tree":
        return "/".join(rest[2:])
    # modelscope.cn/models/OWNER/NAME/file/view/master/PATH
    if registry == "modelscope" and len(rest) > 3 and rest[:2] == ["file", "view"]:
        return "/".join(rest[3:])
    return ""


def _host(url: str) -> str:
    """With the port, if it is none of the usual ones; empty when there is no host."""
    try:
        parts = urlsplit(url)
    except ValueError:  # as for `http://[`
        return ""
    name = (parts.hostname or "").lower()
    try:
        return f"{name}:{parts.port}" if parts.port not in (None, 80, 443) else name
    except ValueError:
        return name

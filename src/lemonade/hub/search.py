"""Looking for models on the hubs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from lemonade.errors import HubError, InvalidArgument, Offline, RegistryReplied, RegistryUnreachable
from lemonade.hub.huggingface import mirror
from lemonade.hub.modelscope import ModelScope
from lemonade.hub.wire import Wire, host

#: A hub finds everything for shorter words.
SHORTEST = 3
LARGEST = 50

#: Tasks that no engine here can do anything with.
_OTHER_TASKS = (
    *("text-to-image", "image-to-image", "text-to-video", "image-to-video", "text-to-3d", "image-to-3d"),
    *("text-to-speech", "text-to-audio", "audio-to-audio", "unconditional-image-generation"),
    *("text-to-image-synthesis", "text-to-video-synthesis", "image-to-video-task"),
)


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """One repository that was found."""

    repository_id: str
    display_name: str
    source: str
    repository_type: str = "model"
    description: str = ""
    tags: tuple[str, ...] = ()
    task: str = ""
    downloads: int = 0
    likes: int = 0
    has_gguf: bool = False


def search(
    query: str, *, source: str, limit: int, gguf: bool = False, env: Mapping[str, str] = os.environ
) -> list[Hit]:
    """The repositories that fit best, the best first. Blocks.

    Args:
        query: words of a name.
        source: `huggingface` or `modelscope`.
        limit: how many at most, up to 50.
        gguf: only repositories with GGUF files.

    Raises:
        HubError: the hub cannot be asked.
    """
    find = {"huggingface": _huggingface, "modelscope": _modelscope}.get(source)
    if find is None:
        raise InvalidArgument("'source' must be 'huggingface' or 'modelscope'.", param="source")
    hits = {hit.repository_id: hit for hit in find(query, limit, gguf, env) if hit.task not in _OTHER_TASKS}
    wanted = [hit for hit in hits.values() if hit.has_gguf or not gguf]
    return sorted(wanted, key=lambda hit: (-_score(hit, query), -hit.downloads, hit.repository_id))[:limit]


def _score(hit: Hit, query: str) -> int:
    """How well a repository fits: by its name first, then by GGUF files, then by how many people took it."""
    wanted, name = query.lower(), hit.display_name.lower()
    if name == wanted or hit.repository_id.lower() == wanted:
        fit = 10_000
    elif name.startswith(wanted):
        fit = 7_500
    elif wanted in name:
        fit = 5_000
    else:
        fit = 2_500 if wanted in hit.repository_id.lower() else 0
    return fit + (2_000 if hit.has_gguf else 0) + min(hit.downloads, 1000)


def _enough(limit: int) -> int:
    """How many to ask a hub for, of which some are of no use here."""
    return min(LARGEST, max(24, 2 * limit))


def _huggingface(query: str, limit: int, gguf: bool, env: Mapping[str, str]) -> Iterable[Hit]:
    # Not the library's `list_models`, which tries a hub that cannot be reached for half a minute.
    hub = mirror(env)
    from urllib.parse import urlencode

    import httpx2
    from huggingface_hub import constants, get_token

    wire = Wire(hub or constants.ENDPOINT, get_token())
    parameters = {"search": query, "sort": "downloads", "limit": _enough(limit), **({"filter": "gguf"} if gguf else {})}
    try:
        with wire.get(f"{wire.endpoint}/api/models?{urlencode(parameters)}") as response:
            if response.status_code != 200:
                raise _refusal(host(wire.endpoint), response.status_code)
            rows = msgspec.json.decode(response.read())
    except Offline as error:
        raise Offline("HF_HUB_OFFLINE is set, so the hub is not asked. Unset it to search.") from error
    except httpx2.TransportError as error:
        raise RegistryUnreachable(f"{host(wire.endpoint)} cannot be reached ({error or 'no answer'}).") from error
    except ValueError as error:
        raise RegistryReplied(f"{host(wire.endpoint)} answers a search as no Hugging Face hub does.") from error
    try:
        return [_found(row) for row in rows]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise RegistryReplied(f"{host(wire.endpoint)} answers a search as no Hugging Face hub does.") from error


def _found(row: Mapping[str, Any]) -> Hit:
    name, tags = row["id"], tuple(str(tag) for tag in row.get("tags") or ())
    return Hit(
        repository_id=name,
        display_name=name.rpartition("/")[2],
        source="huggingface",
        tags=tags,
        task=row.get("pipeline_tag") or "",
        downloads=int(row.get("downloads") or 0),
        likes=int(row.get("likes") or 0),
        has_gguf="gguf" in tags or "gguf" in name.lower(),
    )


def _modelscope(query: str, limit: int, gguf: bool, env: Mapping[str, str]) -> Iterable[Hit]:
    from urllib.parse import urlencode

    scope = ModelScope(env=env)
    # Its index knows the format by the name only, so the word is searched for as well.
    words = f"{query} GGUF" if gguf and "gguf" not in query.lower() else query
    parameters = {"sort": "downloads", "page_number": 1, "page_size": _enough(limit), "search": words}
    data = scope.ask(f"/openapi/v1/models?{urlencode(parameters)}", words)
    try:
        rows: list[Mapping[str, Any]] = data["data"]["models"]
        return [_row(row) for row in rows]
    except (KeyError, TypeError, AttributeError) as error:
        raise RegistryReplied(f"{scope.host} answers a search as ModelScope does not.") from error


def _row(row: Mapping[str, Any]) -> Hit:
    tags = tuple(str(tag) for tag in row.get("tags") or ())
    tasks = row.get("tasks") or ()
    return Hit(
        repository_id=row["id"],
        display_name=row.get("display_name") or row["id"].rpartition("/")[2],
        source="modelscope",
        description=row.get("description") or "",
        tags=tags,
        task=str(tasks[0]) if tasks else "",
        downloads=int(row.get("downloads") or 0),
        likes=int(row.get("likes") or 0),
        has_gguf="gguf" in row["id"].lower() or any("gguf" in tag.lower() for tag in tags),
    )


def _refusal(name: str, status: int) -> HubError:
    error: HubError
    if status == 429:
        error = RegistryUnreachable(f"{name} has had too many requests from here; try again in a while.")
        error.status = 429
    elif status >= 500:
        error = RegistryUnreachable(f"{name} is out of order (HTTP {status}); try again later.")
    else:
        error = RegistryReplied(f"{name} answers a search with HTTP {status}.")
    error.details = {"upstream_status_code": status}
    return error

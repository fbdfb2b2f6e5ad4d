"""Whether a registry has newer files than those that are here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from lemonade.errors import FileNotInRepository
from lemonade.hub.layout import Folder
from lemonade.hub.registry import Listing, RemoteFile
from lemonade.hub.selection import select
from lemonade.hub.store import OPTIONAL_ROLES
from lemonade.model import Checkpoint, Model

#: Registries whose repositories move on. A release of a package never changes.
MOVING = ("huggingface", "modelscope")


def is_outdated(models: Path, model: Model, latest: Callable[[str], Listing]) -> bool:
    """Whether pulling a downloaded model would bring other bytes than those that are here.

    A commit that changes nothing of the model's own files is no update, and neither is a repository that has lost
    them: there is nothing newer to get.

    Args:
        models: the model cache.
        latest: the newest listing of a repository. Blocks; raises HubError.
    """
    for repository in dict.fromkeys(Checkpoint.parse(text).repository for text in model.checkpoints.values()):
        folder = Folder(models, model.registry, repository)
        current = _current(folder)
        listing = latest(repository)
        if current is None or listing.revision == current:
            continue
        if any(not _is_same(folder, current, file) for file in _wanted(model, repository, listing)):
            return True
    return False


def _wanted(model: Model, repository: str, listing: Listing) -> list[RemoteFile]:
    """The files of the listing that the model's checkpoints mean."""
    by_path = {file.path: file for file in listing.files}
    names: set[str] = set()
    for role, text in model.checkpoints.items():
        checkpoint = Checkpoint.parse(text)
        if checkpoint.repository == repository and role not in OPTIONAL_ROLES:
            try:
                names |= set(select(list(by_path), checkpoint, role=role, recipe=model.recipe))
            except FileNotInRepository:
                continue
    return [by_path[name] for name in sorted(names)]


def _current(folder: Folder) -> str | None:
    try:
        return (folder.path / "refs" / "main").read_text(encoding="ascii", errors="replace").strip() or None
    except OSError:
        return None


def _is_same(folder: Folder, revision: str, file: RemoteFile) -> bool:
    content = file.sha256 or file.etag
    for known in _listed(folder, revision):
        if known.path == file.path:
            return content == (known.sha256 or known.etag)
    # Another tool fetched it; its cache names the bytes after their hash.
    place = folder.file(revision, file.path)
    if place.is_symlink():
        return place.readlink().name == content
    try:
        return place.stat().st_size == file.size
    except OSError:
        return False


def _listed(folder: Folder, revision: str) -> tuple[RemoteFile, ...]:
    try:
        note = (folder.path / ".lemonade" / f"{revision}.json").read_bytes()
        return msgspec.json.decode(note, type=Listing).files
    except (OSError, msgspec.MsgspecError):
        return ()

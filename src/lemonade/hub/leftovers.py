"""What lies in the model cache and is of no use to anybody: snapshots that were replaced, downloads that were left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from lemonade.hub.layout import INCOMPLETE, VALIDATOR, Folder
from lemonade.hub.registry import Listing
from lemonade.hub.store import Store
from lemonade.model import Model


class Leftover(msgspec.Struct, frozen=True, kw_only=True):
    """One file that can go.

    Attributes:
        path: where it lies.
        size: bytes that go with it.
        type: `old_snapshot` for a file of a commit that was replaced, `partial` for a download that was given up.
        registry, belongs_to: the repository.
    """

    path: Path
    size: int
    type: str
    registry: str
    belongs_to: str


def find(store: Store, models: Iterable[Model]) -> list[Leftover]:
    """Everything that can go. Only what this program brought is looked at: other tools share the cache.

    Args:
        models: every model that may use files of the cache.
    """
    used = {path for model in models for path in store.files(model)}
    found: list[Leftover] = []
    for folder, listings in _folders(store.models):
        for path in sorted((folder.path / "blobs").glob(f"*{INCOMPLETE}")):
            found.append(_leftover(path, "partial", listings[0]))
        for listing in listings:
            found += [
                _leftover(path, "old_snapshot", listing) for path in _replaced(folder, listing) if path not in used
            ]
    return found


def remove(store: Store, leftovers: Iterable[Leftover]) -> None:
    """Removes what `find` found, and the bytes that nothing else shows.

    Raises:
        OSError: a file cannot be removed.
    """
    by_repository: dict[tuple[str, str], list[Path]] = {}
    for leftover in leftovers:
        names = by_repository.setdefault((leftover.registry, leftover.belongs_to), [])
        if leftover.type == "partial":
            leftover.path.unlink(missing_ok=True)
            leftover.path.with_name(leftover.path.name.removesuffix(INCOMPLETE) + VALIDATOR).unlink(missing_ok=True)
        else:
            names.append(leftover.path)
    for (registry, repository), names in by_repository.items():
        folder = Folder(store.models, registry, repository)
        folder.unlink(names)
        folder.tidy()


def _folders(models: Path) -> Iterator[tuple[Folder, list[Listing]]]:
    """The repositories that this program keeps notes of, with what was listed for their commits."""
    for notes in sorted(models.glob("*/.lemonade")):
        listings = []
        for note in sorted(notes.glob("*.json")):
            try:
                listings.append(msgspec.json.decode(note.read_bytes(), type=Listing))
            except (OSError, msgspec.MsgspecError):
                continue
        if listings and not notes.parent.is_symlink():
            folder = Folder(models, listings[0].registry, listings[0].repository)
            if folder.path == notes.parent:
                yield folder, listings


def _replaced(folder: Folder, listing: Listing) -> list[Path]:
    """The files of a commit that this program fetched and that no reference names any more."""
    named = {_text(ref) for ref in (folder.path / "refs").rglob("*") if ref.is_file()}
    if listing.revision in named:
        return []
    places = sorted(folder.snapshot(listing.revision).rglob("*"))
    return [path for path in places if path.is_symlink() or path.is_file()]


def _leftover(path: Path, kind: str, listing: Listing) -> Leftover:
    try:
        size = path.stat().st_size
    except OSError:
        size = 0
    return Leftover(path=path, size=size, type=kind, registry=listing.registry, belongs_to=listing.repository)


def _text(ref: Path) -> str:
    try:
        return ref.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""

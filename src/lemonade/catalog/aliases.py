"""Second names for models: `gpt-4o` may mean whatever a person wants it to mean."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from lemonade.catalog.stores import ObjectFile
from lemonade.errors import AliasConflict, AliasNotFound, InvalidAlias

log = logging.getLogger("lemonade.catalog")

#: Links in a chain of aliases; longer ones are refused. Source: the specification's limit.
MAX_DEPTH = 10

RESERVED = ("user.", "extra.", "builtin.")


class Aliases:
    """Alias to target, both as a person typed them. Targets need not exist.

    Args:
        file: where they are kept, readable for the owner only.
        is_model: whether a name is a model's own, which an alias may not take.
    """

    def __init__(self, file: Path, is_model: Callable[[str], bool]) -> None:
        self._file = ObjectFile(file, private=True, set_aside=True)
        self._is_model = is_model
        self._usable: dict[str, str] = {}
        self._usable_version = -1

    @property
    def version(self) -> int:
        self._file.values()
        return self._file.version

    def all(self) -> dict[str, str]:
        """The aliases in the order of their names; entries that lead nowhere but to themselves are left out."""
        values = self._file.values()
        if self._file.version != self._usable_version:
            links = {
                name: target.strip()
                for name, target in sorted(values.items())
                if isinstance(target, str) and name.strip() and target.strip()
            }
            self._usable = {name: target for name, target in links.items() if final(name, links) is not None}
            for name in values.keys() - self._usable.keys():
                log.error("The alias %r in %s is ignored: it has no target or leads in a circle", name, self._file.path)
            self._usable_version = self._file.version
        return self._usable

    def target(self, name: str) -> str | None:
        """The name that an alias means in the end, or None when it is no alias."""
        links = self.all()
        return final(name, links) if name in links else None

    def add(self, alias: str, target: str) -> None:
        """Makes `alias` mean `target`, also if it meant something else before.

        Raises:
            InvalidAlias: a name that is empty, reserved, or its own target.
            AliasConflict: a model's own name, a circle, or a chain that is too long.
            OSError: the file cannot be written.
        """
        alias, target = alias.strip(), target.strip()
        if not alias or not target:
            raise InvalidAlias("Alias and target fields are required", param="alias")
        if alias == target:
            raise InvalidAlias("Alias cannot point to itself", param="alias")
        if alias.startswith(RESERVED):
            raise InvalidAlias("Alias name cannot use reserved prefixes (user., extra., builtin.)", param="alias")
        if any(ord(letter) < 32 for letter in alias + target):
            raise InvalidAlias("Alias and target must not contain control characters", param="alias")
        if self._is_model(alias):
            reason = "Name conflicts with an existing canonical model"
            raise AliasConflict(f"Cannot create alias '{alias}': {reason}", param="alias")

        def edit(values: dict[str, str]) -> None:
            before = {name: value for name, value in values.items() if isinstance(value, str) and name != alias}
            after = {**before, alias: target}
            # The new link also lengthens the chains that lead to it.
            if any(final(name, after) is None and final(name, before) is not None for name in after):
                reason = f"It would make a circle, or a chain of more than {MAX_DEPTH} aliases"
                raise AliasConflict(f"Cannot create alias '{alias}': {reason}", param="alias")
            values[alias] = target

        self._file.change(edit)

    def remove(self, alias: str) -> None:
        """Forgets an alias.

        Raises:
            AliasNotFound: there is none of this name.
            OSError: the file cannot be written.
        """
        alias = alias.strip()

        def edit(values: dict[str, str]) -> None:
            if alias not in values:
                raise AliasNotFound(f"Alias not found: {alias}", param="alias")
            del values[alias]

        self._file.change(edit)


def final(name: str, links: Mapping[str, str]) -> str | None:
    """Where a chain ends, or None when it is a circle or longer than `MAX_DEPTH`."""
    for _ in range(MAX_DEPTH + 1):
        target = links.get(name)
        if target is None:
            return name
        name = target
    return None

"""Collections whose components a repository lists: the manifest in its folder in the model cache."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

log = logging.getLogger("lemonade.catalog")

#: Larger files are no manifests.
MAX_MANIFEST = 5 << 20


def manifest(folder: Path | None) -> dict[str, Any]:
    """The manifest among a folder's `*.json` files: an object with a collection's recipe and components.

    `{}` when there is none, or none that can be read.
    """
    if folder is None or not folder.is_dir():
        return {}
    for path in sorted(folder.glob("*.json")):
        try:
            if path.stat().st_size > MAX_MANIFEST:
                continue
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            log.warning("%s cannot be read: %s", path, error)
            continue
        if isinstance(found, dict) and str(found.get("recipe", "")).startswith("collection."):
            names = found.get("components")
            if isinstance(names, list) and names and all(isinstance(name, str) for name in names):
                return found
            log.warning("%s lists no components", path)
    return {}

"""What the dependencies cost: licence, size on disk and import time of each, as a Markdown table.

python -m bench.dependencies

What engines fetch when it is wanted is among them if PYTHONPATH names its folder (`<cache>/bin/fasterwhisper/cpu`).
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from lemonade.engines.backends import installed_version
from lemonade.engines.fasterwhisper.engine import PACKAGES

PYPROJECT = Path(__file__).parent.parent / "pyproject.toml"

#: Starts of which the quickest counts: the others waited for the disk or for another program.
STARTS = 5

_CLASSIFIER = "License :: OSI Approved :: "


def names(group: str) -> list[str]:
    """The distributions that one group of pyproject.toml names: `runtime`, `test` or `dev`."""
    with PYPROJECT.open("rb") as file:
        project = tomllib.load(file)
    wanted = project["project"]["dependencies"] if group == "runtime" else project["dependency-groups"][group]
    return [re.split(r"[^\w.-]", one, maxsplit=1)[0] for one in wanted if isinstance(one, str)]


def licence(name: str) -> str:
    metadata = importlib.metadata.metadata(name)
    if said := metadata.get("License-Expression"):
        return said
    for classifier in metadata.get_all("Classifier") or []:
        if classifier.startswith(_CLASSIFIER):
            return classifier.removeprefix(_CLASSIFIER)
    return (metadata.get("License") or "not said").splitlines()[0]


def size(name: str) -> float:
    """MB of its own files, compiled ones included."""
    files = importlib.metadata.files(name) or []
    places = (Path(str(file.locate())) for file in files)
    return sum(place.stat().st_size for place in places if place.is_file()) / 1e6


def import_time(name: str) -> float | None:
    """Milliseconds for `import` in a new interpreter, with all that it imports itself; None for stubs."""
    module = name.replace("-", "_")
    if importlib.util.find_spec(module) is None:
        return None
    code = f"import time; begin = time.perf_counter(); import {module}; print(time.perf_counter() - begin)"
    command = (sys.executable, "-c", code)
    return min(float(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(STARTS)) * 1e3


def rows() -> Iterator[str]:
    yield "| Package | Version | Group | Licence | Size | Import |"
    yield "| --- | --- | --- | --- | ---: | ---: |"
    groups = {group: names(group) for group in ("runtime", "test", "dev")}
    groups["fetched"] = [name for one in PACKAGES if installed_version(name := one.partition("==")[0])]
    for group, found in groups.items():
        for name in found:
            took = import_time(name)
            shown = "-" if took is None else f"{took:.0f} ms"
            version = importlib.metadata.version(name)
            yield f"| {name} | {version} | {group} | {licence(name)} | {size(name):.1f} MB | {shown} |"


def main() -> None:
    for row in rows():
        print(row, flush=True)


if __name__ == "__main__":
    main()

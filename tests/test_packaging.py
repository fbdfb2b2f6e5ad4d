"""What an installer reads."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]


def test_no_requirement_compares_releases_of_systems_as_versions() -> None:
    """pip from 24.1 to 25.3 breaks off the installation where the kernel is called `6.8.0-45-generic`."""
    requirements = [
        *PROJECT["dependencies"],
        *(one for more in PROJECT["optional-dependencies"].values() for one in more),
    ]
    assert requirements
    compared = re.compile(r"platform_(release|version)\s*(?!\s|in\b|not\s+in\b)")
    assert [one for one in requirements if compared.search(one)] == []

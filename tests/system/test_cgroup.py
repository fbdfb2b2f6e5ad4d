from __future__ import annotations

from pathlib import Path

import pytest

from lemonade.system.cgroup import MemoryLimit, memory_limits


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


@pytest.mark.parametrize(
    ("own", "files", "limits"),
    [
        # A container with a namespace of its own.
        (
            "0::/",
            {"memory.max": "1000", "memory.current": "400", "memory.stat": "anon 1\ninactive_file 100"},
            [(1000, 300)],
        ),
        # A service inside a slice: both limits hold.
        (
            "0::/a.slice/b.service",
            {
                "a.slice/memory.max": "5000",
                "a.slice/memory.current": "50",
                "a.slice/b.service/memory.max": "900",
                "a.slice/b.service/memory.current": "10",
            },
            [(900, 10), (5000, 50)],
        ),
        ("0::/", {"memory.max": "max", "memory.current": "400"}, []),
        ("0::/gone", {}, []),
        ("", {}, []),
        ("nonsense", {}, []),
        # Version 1.
        (
            "5:cpu,memory:/docker/x\n4:pids:/",
            {
                "memory/docker/x/memory.limit_in_bytes": "700",
                "memory/docker/x/memory.usage_in_bytes": "100",
                "memory/memory.limit_in_bytes": str((1 << 63) - 4096),
                "memory/memory.usage_in_bytes": "5",
            },
            [(700, 100)],
        ),
    ],
)
def test_limits(tmp_path: Path, own: str, files: dict[str, str], limits: list[tuple[int, int]]) -> None:
    (tmp_path / "self").write_text(own)
    write(tmp_path / "root", files)
    found = memory_limits(tmp_path / "root", tmp_path / "self")
    assert found == [MemoryLimit(*limit) for limit in limits]


def test_free_is_never_negative() -> None:
    assert MemoryLimit(10, 30).free == 0


def test_no_cgroups_at_all(tmp_path: Path) -> None:
    assert memory_limits(tmp_path, tmp_path / "none") == []

from __future__ import annotations

from pathlib import Path

from lemonade.system.hardware import GIB
from lemonade.system.usage import FRESH, Usage


def test_gpus_that_tell(tmp_path: Path) -> None:
    for card, busy, used in (("card0", "7", str(2 * GIB)), ("card1", "93", str(GIB)), ("card2", "?", "")):
        device = tmp_path / card / "device"
        device.mkdir(parents=True)
        (device / "gpu_busy_percent").write_text(f"{busy}\n")
        (device / "mem_info_vram_used").write_text(f"{used}\n")
    load = Usage(drm=tmp_path).now()
    assert (load.gpu_percent, load.vram_gb, load.npu_percent) == (93.0, 3.0, None)


def test_a_machine_without(tmp_path: Path) -> None:
    load = Usage(drm=tmp_path / "none").now()
    assert (load.gpu_percent, load.vram_gb) == (None, None)
    assert load.memory_gb > 0


def test_it_looks_no_more_often_than_it_has_to(tmp_path: Path) -> None:
    now = [0.0]
    usage = Usage(drm=tmp_path, clock=lambda: now[0])
    first = usage.now()
    assert usage.now() is first
    now[0] += FRESH
    sum(range(200_000))
    second = usage.now()
    assert second is not first
    assert second.cpu_percent is None or 0 <= second.cpu_percent <= 100

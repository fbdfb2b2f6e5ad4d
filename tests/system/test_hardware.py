from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lemonade.system.hardware import GPU, Hardware, drm_gpus


def test_this_machine() -> None:
    hardware = Hardware.detect()
    assert hardware.os in ("linux", "windows", "macos")
    assert hardware.processor
    assert 1 <= hardware.cores <= hardware.threads
    assert 0 < hardware.memory_available() <= hardware.memory


def test_nothing_is_started_to_look_at_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **more: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    assert isinstance(Hardware.detect().gpus, tuple)


def test_gpus_are_looked_for_late_and_once() -> None:
    calls: list[int] = []

    def look() -> tuple[GPU, ...]:
        calls.append(1)
        return (GPU("Card", "amd"),)

    hardware = Hardware(look_for_gpus=look)
    assert not calls
    assert hardware.gpus == hardware.gpus == (GPU("Card", "amd"),)
    assert len(calls) == 1


def device(root: Path, card: str, **files: str) -> None:
    folder = root / card / "device"
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text + "\n")


def test_gpus_of_linux(tmp_path: Path) -> None:
    gib = 1024**3
    device(
        tmp_path,
        "card0",
        vendor="0x1002",
        device="0x1586",
        mem_info_vram_total=str(gib // 2),
        mem_info_gtt_total=str(60 * gib),
    )
    device(tmp_path, "card1", vendor="0x1002", mem_info_vram_total=str(24 * gib), mem_info_gtt_total=str(16 * gib))
    device(tmp_path, "card2", vendor="0x10de", device="0x2684")
    device(tmp_path, "card3", vendor="0x1a03")
    (tmp_path / "card0-HDMI-A-1").mkdir()
    apu, card, nvidia = drm_gpus(tmp_path)
    assert (apu.vendor, apu.integrated, apu.shared) == ("amd", True, 60 * gib)
    assert (card.integrated, card.vram) == (False, 24 * gib)
    assert (nvidia.vendor, nvidia.vram, nvidia.name) == ("nvidia", 0, "NVIDIA GPU 0x2684")

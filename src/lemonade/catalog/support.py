"""What this machine can run: the reasons for which a model is left out of the listing."""

from __future__ import annotations

from collections.abc import Callable

from lemonade.model import Model
from lemonade.system.hardware import GIB, Hardware

#: Share of the memory that a model may fill; the rest is for the system and the context. Source: the specification.
MEMORY_SHARE = 0.8


class Support:
    """Why a model cannot run here.

    Args:
        unsupported: the reason for which no engine runs a recipe here, or None.
        count_shared: whether discrete GPUs may count shared memory (the setting `enable_dgpu_gtt`).
    """

    def __init__(
        self, hardware: Hardware, unsupported: Callable[[str], str | None], count_shared: Callable[[], bool]
    ) -> None:
        self._hardware = hardware
        self._unsupported = unsupported
        self._count_shared = count_shared
        self._refusals: dict[str, str | None] = {}

    def forget(self) -> None:
        """Has the engines asked again. Until then each answer counts: there are thousands of models of one recipe."""
        self._refusals.clear()

    def reason(self, model: Model) -> str | None:
        """Why the model cannot run on this machine, for a person; None when it can. Collections always can."""
        if model.is_collection or model.recipe == "cloud":
            return None
        if model.recipe not in self._refusals:
            self._refusals[model.recipe] = self._unsupported(model.recipe)
        if refusal := self._refusals[model.recipe]:
            machine = f"{self._hardware.processor}, {self._hardware.os_version}"
            return f"{refusal.rstrip('.')}. This machine: {machine}."
        return self._too_big(model)

    def _too_big(self, model: Model) -> str | None:
        if model.origin != "builtin" or model.size <= 0 or self._hardware.memory <= 0:
            return None
        memory = self._hardware.memory / GIB
        limit = MEMORY_SHARE * memory
        if model.size <= limit:
            return None
        pool = self._largest_pool() / GIB
        if model.size <= pool:
            return None
        return (
            f"It needs about {model.size:.1f} GB, but models may use at most {max(limit, pool):.1f} GB "
            f"of this machine's memory ({memory:.1f} GB of RAM)."
        )

    def _largest_pool(self) -> int:
        largest = 0
        for gpu in self._hardware.gpus:
            if self._count_shared():
                pool = gpu.vram + gpu.shared
            elif gpu.integrated:
                pool = max(gpu.vram, gpu.shared)
            else:
                pool = gpu.vram
            largest = max(largest, pool)
        return largest

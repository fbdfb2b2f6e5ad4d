from __future__ import annotations

from lemonade.engines.cloud.circuit import FIRST_PAUSE, LONGEST_PAUSE, Circuit


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_it_opens_after_three_failures_in_a_row() -> None:
    circuit = Circuit(Clock())
    for _ in range(2):
        circuit.failed()
        assert circuit.wait() == 0
    circuit.answered()
    for _ in range(3):
        assert circuit.wait() == 0
        circuit.failed()
    assert circuit.wait() == FIRST_PAUSE


def test_after_the_pause_one_goes_to_see() -> None:
    clock = Clock()
    circuit = Circuit(clock)
    for _ in range(3):
        circuit.failed()
    clock.now += FIRST_PAUSE
    assert circuit.wait() == 0
    assert circuit.wait() > 0
    circuit.answered()
    assert circuit.wait() == 0
    assert circuit.wait() == 0


def test_the_pause_grows_up_to_a_limit_and_begins_anew() -> None:
    clock = Clock()
    circuit = Circuit(clock)
    for _ in range(3):
        circuit.failed()
    pauses = []
    for _ in range(6):
        clock.now += LONGEST_PAUSE
        assert circuit.wait() == 0
        circuit.failed()
        pauses.append(circuit.wait())
    assert pauses == [10, 20, 40, 60, 60, 60]
    clock.now += LONGEST_PAUSE
    circuit.answered()
    for _ in range(3):
        circuit.failed()
    assert circuit.wait() == FIRST_PAUSE


def test_one_that_went_to_see_and_never_came_back_does_not_close_the_way_for_ever() -> None:
    clock = Clock()
    circuit = Circuit(clock)
    for _ in range(3):
        circuit.failed()
    clock.now += FIRST_PAUSE
    assert circuit.wait() == 0
    clock.now += FIRST_PAUSE
    assert circuit.wait() == 0

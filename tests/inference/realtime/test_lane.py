from __future__ import annotations

import asyncio

from lemonade.inference.realtime.lane import Lane


class Sessions:
    """Interim transcriptions of several sessions, in the order in which they began."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.begun: list[str] = []
        self.cancelled: list[str] = []
        self.go_on = asyncio.Event()

    def wish(self, name: str) -> None:
        self.lane.wish(name, lambda: self._begin(name))

    def _begin(self, name: str) -> asyncio.Task[None]:
        self.begun.append(name)
        return asyncio.create_task(self._run(name))

    async def _run(self, name: str) -> None:
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_one_interim_at_a_time_and_each_session_in_turn() -> None:
    lane = Lane()
    sessions = Sessions(lane)
    for name in ("a", "b", "b", "c", "a"):
        sessions.wish(name)
    await settle()
    assert sessions.begun == ["a"]
    sessions.go_on.set()
    await settle()
    assert sessions.begun == ["a", "b", "c", "a"]


async def test_a_final_goes_before_every_interim() -> None:
    lane = Lane()
    sessions = Sessions(lane)
    sessions.wish("a")
    await settle()
    with lane.final():
        await settle()
        assert sessions.cancelled == ["a"]
        sessions.wish("b")
        with lane.final():
            await settle()
        await settle()
        assert sessions.begun == ["a"], "another final is due"
    await settle()
    assert sessions.begun == ["a", "b"]
    sessions.go_on.set()
    await settle()


async def test_a_wish_that_is_not_wanted_any_more_makes_room() -> None:
    lane = Lane()
    sessions = Sessions(lane)
    with lane.final():
        lane.wish("gone", lambda: None)
        lane.wish("withdrawn", lambda: sessions._begin("withdrawn"))
        lane.withdraw("withdrawn")
        sessions.wish("a")
    await settle()
    assert sessions.begun == ["a"]
    sessions.go_on.set()
    await settle()


def test_the_pace_follows_what_the_engine_does() -> None:
    lane = Lane()
    lane.note(1.0, 2.0, draft=False)
    assert lane.pace == 0.5
    for _ in range(20):
        lane.note(0.2, 2.0, draft=True)
    assert 0.1 <= lane.pace < 0.11
    lane.note(4.0, 2.0, draft=False)
    assert lane.pace < 0.11, "a final text takes more work"
    lane.note(0.1, 2.0, draft=False)
    assert lane.pace == 0.05

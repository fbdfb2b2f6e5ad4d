"""A session without a daemon: which events come, in which order, and what the engine is asked meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from lemonade.errors import LemonadeError, ModelLoadError, ModelNotFound
from lemonade.inference.realtime import messages as say
from lemonade.inference.realtime import preview
from lemonade.inference.realtime import session as module
from lemonade.inference.realtime.session import Session
from lemonade.inference.realtime.transcriber import Speech, Transcriber
from lemonade.model import Model
from tests.speech import pieces, silence, voice

EAR = Model(name="ear", recipe="whispercpp", labels=("realtime-transcription",))
CHAT = Model(name="chat", recipe="llamacpp", labels=("chat",))


class Engine(Transcriber):
    """Answers how long what it heard is. `hold` stops it, `failure` is what it fails with."""

    def __init__(self) -> None:
        super().__init__(None, None)  # type: ignore[arg-type]
        self.asked: list[tuple[str, Speech]] = []
        self.given_up = 0
        self.warmed: list[str] = []
        self.failure: Exception | None = None
        self.hold = asyncio.Event()
        self.hold.set()

    async def _ask(self, model: Model, speech: Speech, metrics: Any) -> str:
        self.asked.append((model.name, speech))
        try:
            await self.hold.wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        if self.failure is not None:
            raise self.failure
        return f"{round(speech.seconds * 1000)} ms"

    async def warm(self, model: Model) -> None:
        self.warmed.append(model.name)


class World:
    def __init__(self, model: str) -> None:
        self.engine = Engine()
        self.told: list[say.ServerMessage] = []
        self.session = Session(self._send, self._find, self.engine, model=model)

    async def _send(self, message: say.ServerMessage) -> None:
        self.told.append(message)

    @staticmethod
    def _find(name: str) -> Model:
        for model in (EAR, CHAT):
            if model.name == name:
                return model
        raise ModelNotFound(f"No model '{name}'.", requested=name)

    async def append(self, audio: bytes, milliseconds: int = 100) -> None:
        for piece in pieces(audio, milliseconds):
            await self.session.handle(say.Append(piece))
            await settle()

    async def commit(self) -> None:
        await self.session.handle(say.Commit())
        await settle()

    async def update(self, **fields: Any) -> None:
        await self.session.handle(say.SessionUpdate(msgspec.convert(fields, say.SessionFields)))

    @property
    def kinds(self) -> list[str]:
        return [type(message).__name__ for message in self.told]

    def of(self, kind: type) -> list[Any]:
        return [message for message in self.told if isinstance(message, kind)]


@asynccontextmanager
async def opened(model: str = "ear") -> AsyncIterator[World]:
    world = World(model)
    await world.session.open()
    try:
        yield world
    finally:
        await world.session.close()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_turn_from_its_beginning_to_its_text() -> None:
    async with opened() as world:
        await world.append(silence(500) + voice(3000) + silence(1000))
        assert world.kinds == [
            "SessionCreated",
            "SpeechStarted",
            "Delta",
            "Delta",
            "Delta",
            "SpeechStopped",
            "Completed",
        ]
        items = {message.item_id for message in world.told[1:]}  # type: ignore[union-attr]
        assert len(items) == 1
        (done,) = world.of(say.Completed)
        assert done.transcript == "4180 ms"
        assert [speech.draft for _, speech in world.engine.asked] == [True, True, True, False]
        assert done.usage == {"type": "duration", "seconds": 4.18}
        assert len({message.event_id for message in world.told}) == len(world.told)
        assert world.engine.warmed == ["ear"]


async def test_turns_are_told_in_their_order() -> None:
    async with opened() as world:
        world.engine.hold.clear()
        await world.append((voice(500) + silence(1000)) * 3)
        assert [name for name, _ in world.engine.asked] == ["ear"], "one after the other"
        world.engine.hold.set()
        await settle()
        assert [one.item_id for one in world.of(say.Completed)] == [one.item_id for one in world.of(say.SpeechStopped)]
        assert len(world.engine.asked) == 3


async def test_manual_turns() -> None:
    async with opened() as world:
        await world.update(turn_detection=None)
        await world.append(silence(300) + voice(1000) + silence(1500) + voice(500))
        assert world.kinds == ["SessionCreated", "SessionUpdated"]
        assert world.engine.asked == []
        await world.commit()
        await world.append(voice(200))
        await world.commit()
        assert world.kinds[2:] == ["Committed", "Completed", "Committed", "Completed"]
        first, second = world.of(say.Committed)
        assert (first.previous_item_id, second.previous_item_id) == (None, first.item_id)
        assert [one.transcript for one in world.of(say.Completed)] == ["3300 ms", "200 ms"]


async def test_a_commit_in_the_middle_of_a_turn() -> None:
    async with opened() as world:
        await world.append(voice(600))
        await world.commit()
        started, committed, done = world.told[1:]
        assert (type(started), type(committed), type(done)) == (say.SpeechStarted, say.Committed, say.Completed)
        assert started.item_id == committed.item_id == done.item_id  # type: ignore[union-attr]
        await world.append(silence(2000))
        assert len(world.told) == 4, "the turn is over"


async def test_a_commit_without_a_turn_clears() -> None:
    async with opened() as world:
        await world.append(silence(600))
        await world.commit()
        assert world.kinds[1:] == ["Cleared"]
        assert world.engine.asked == []


@pytest.mark.parametrize("detection", [True, False])
async def test_a_commit_of_nothing_is_an_error(detection: bool) -> None:
    async with opened() as world:
        if not detection:
            await world.update(turn_detection=None)
        with pytest.raises(LemonadeError) as caught:
            await world.commit()
        assert caught.value.code == "input_audio_buffer_commit_empty"
        await world.append(voice(500))
        await world.commit()
        assert "Completed" in world.kinds


async def test_clear_ends_a_turn_without_a_text() -> None:
    async with opened() as world:
        world.engine.hold.clear()
        await world.append(voice(1500))
        assert len(world.engine.asked) == 1, "a preview"
        await world.session.handle(say.Clear())
        await settle()
        assert world.engine.given_up == 1
        assert world.kinds[1:] == ["SpeechStarted", "Cleared"]
        world.engine.hold.set()
        await world.append(silence(2000))
        assert world.kinds[1:] == ["SpeechStarted", "Cleared"]


async def test_previews_come_once_a_second_of_speech_and_not_in_pauses() -> None:
    async with opened() as world:
        await world.append(voice(5000), 20)
        assert len(world.of(say.Delta)) == 5
        texts = [int(one.delta.split()[0]) for one in world.of(say.Delta)]
        assert texts == sorted(texts)
        await world.append(silence(700), 20)
        assert len(world.of(say.Delta)) == 5


async def test_a_preview_gives_way_to_the_final_text() -> None:
    async with opened() as world:
        world.engine.hold.clear()
        await world.append(voice(1500))
        await world.append(voice(3000))
        assert len(world.engine.asked) == 1, "one preview at a time"
        await world.commit()
        assert world.engine.given_up == 1
        assert len(world.engine.asked) == 2, "the final text does not wait for it"
        world.engine.hold.set()
        await settle()
        assert world.kinds[1:] == ["SpeechStarted", "Committed", "Completed"]


async def test_a_preview_that_never_began_does_not_end_the_others() -> None:
    async with opened() as world:
        await world.append(voice(800))
        # Nothing on the loop runs between the moment at which the preview is due and the final text of another.
        await world.session.handle(say.Append(voice(200)))
        with world.engine.lane(EAR).final():
            pass
        await settle()
        assert world.of(say.Delta) == []
        await world.append(voice(1500))
        assert len(world.of(say.Delta)) >= 1


async def test_a_preview_of_a_long_turn_covers_its_end_only() -> None:
    async with opened() as world:
        await world.append(voice(45_000) + silence(300) + voice(5000), 1000)
        longest = max(speech.seconds for _, speech in world.engine.asked)
        assert longest <= preview.LONGEST_MS / 1000 + 1.5
        # What is kept of it is as long as the turn, all the same.
        parts = [int(part) for part in world.of(say.Delta)[-1].delta.replace(" ms", "").split()]
        assert len(parts) > 2
        assert 49_000 < sum(parts) < 51_000


async def test_an_engine_that_is_slow_is_asked_for_less() -> None:
    async with opened() as world:
        # 10 s of audio take it as long as a preview may take.
        world.engine.lane(EAR).pace = 0.15
        await world.append(voice(60_000), 1000)
        assert max(speech.seconds for _, speech in world.engine.asked) <= 11.5
        parts = [int(part) for part in world.of(say.Delta)[-1].delta.replace(" ms", "").split()]
        assert 56_000 < sum(parts) < 62_000
        assert len(world.of(say.Delta)) < 40


async def test_an_engine_that_cannot_keep_up_is_not_asked_at_all() -> None:
    async with opened() as world:
        world.engine.lane(EAR).pace = 1.0
        await world.append(voice(6000))
        asked = [speech.seconds for _, speech in world.engine.asked]
        assert asked
        assert max(asked) <= 1.5, "only while the turn is short"
        await world.append(silence(1000))
        assert world.kinds[-1] == "Completed"


async def test_the_same_text_is_not_told_twice() -> None:
    async with opened() as world:

        async def same(model: Model, speech: Speech, metrics: Any) -> str:
            return "hello"

        world.engine._ask = same  # type: ignore[method-assign]
        await world.append(voice(5000))
        assert [one.delta for one in world.of(say.Delta)] == ["hello"]


async def test_nobody_hears_of_a_preview_that_failed() -> None:
    async with opened() as world:
        world.engine.failure = ModelLoadError("It does not load.")
        await world.append(voice(4000))
        assert len(world.engine.asked) == 1, "it is not tried again in this turn"
        assert world.kinds[1:] == ["SpeechStarted"]
        await world.append(silence(1000))
        failed, error = world.told[-2:]
        assert isinstance(failed, say.Failed)
        assert isinstance(error, say.Error)
        assert error.error["type"] == "transcription_error"
        assert error.error["message"] == "Transcription failed: It does not load."
        world.engine.failure = None
        await world.append(voice(500) + silence(1000))
        assert isinstance(world.told[-1], say.Completed), "the session lives"


async def test_a_surprise_is_told_as_a_failure() -> None:
    async with opened() as world:
        world.engine.failure = ZeroDivisionError()
        await world.append(voice(500))
        await world.commit()
        assert isinstance(world.told[-1], say.Error)
        assert "ZeroDivisionError" in world.told[-1].error["message"]


@pytest.mark.parametrize("model", ["nope", "chat"])
async def test_a_model_that_cannot_be_had_is_told_at_once(model: str) -> None:
    async with opened(model) as world:
        assert world.kinds == ["SessionCreated", "Error"]
        with pytest.raises(LemonadeError):
            await world.update(model="another")
        await world.update(model="ear")
        await world.append(voice(500))
        await world.commit()
        assert world.kinds[-1] == "Completed"


async def test_no_model_at_all() -> None:
    async with opened("") as world:
        await world.append(voice(500))
        await world.commit()
        assert isinstance(world.told[-1], say.Error)
        assert world.told[-1].error["param"] == "session.model"
        assert world.engine.warmed == []


async def test_odd_audio_is_refused_and_the_rest_stays() -> None:
    async with opened() as world:
        await world.append(voice(500))
        with pytest.raises(LemonadeError) as caught:
            await world.session.handle(say.Append(b"abc"))
        assert caught.value.param == "audio"
        await world.commit()
        assert world.of(say.Completed)[0].transcript == "500 ms"


async def test_what_waits_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_AHEAD", 3)
    async with opened() as world:
        await world.update(turn_detection=None)
        world.engine.hold.clear()
        await world.append(silence(2000))
        await world.commit()
        await world.append(silence(900))
        with pytest.raises(LemonadeError) as caught:
            await world.append(silence(200))
        assert caught.value.code == "input_audio_buffer_full"
        world.engine.hold.set()
        await settle()
        await world.append(silence(200))
        await world.commit()
        assert [one.transcript for one in world.of(say.Completed)] == ["2000 ms", "1200 ms"]


async def test_many_tiny_commits_wait_as_what_they_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_AHEAD", 3)
    async with opened() as world:
        await world.update(turn_detection=None)
        world.engine.hold.clear()
        with pytest.raises(LemonadeError):
            for _ in range(20):
                await world.append(silence(1))
                await world.commit()
        assert len(world.of(say.Committed)) < 10


async def test_the_rate_changes_between_turns_only() -> None:
    async with opened() as world:
        rate = {"audio": {"input": {"format": {"type": "audio/pcm", "rate": 24000}}}}
        await world.append(voice(500))
        with pytest.raises(LemonadeError):
            await world.update(**rate)
        await world.commit()
        await world.append(silence(500))
        await world.update(**rate)
        for piece in pieces(voice(500, rate=24000), 100, rate=24000):
            await world.session.handle(say.Append(piece))
        await world.commit()
        assert world.engine.asked[-1][1].rate == 24000
        assert world.of(say.Completed)[-1].transcript == "500 ms"


async def test_language_and_prompt_go_along() -> None:
    async with opened() as world:
        await world.update(input_audio_transcription={"language": "de", "prompt": "Namen"})
        await world.append(voice(500))
        await world.commit()
        speech = world.engine.asked[-1][1]
        assert (speech.language, speech.prompt) == ("de", "Namen")


async def test_closing_gives_up_what_is_under_way() -> None:
    before = asyncio.all_tasks()
    async with opened() as world:
        world.engine.hold.clear()
        await world.append((voice(1500) + silence(1000)) * 2 + voice(1500))
    assert world.engine.given_up >= 1
    await settle()
    assert asyncio.all_tasks() == before
    assert world.kinds.count("Completed") == 0


async def test_sessions_share_the_way_to_a_model() -> None:
    async with opened() as one, opened() as other:
        other.session._transcriber = one.engine
        one.engine.hold.clear()
        await one.append(voice(1500))
        assert len(one.engine.asked) == 1, "a preview"
        await other.append(voice(1500))
        assert len(one.engine.asked) == 1, "the other session's preview waits"
        await other.commit()
        assert one.engine.given_up == 1, "its final text does not"
        one.engine.hold.set()
        await settle()
        assert other.kinds[-1] == "Completed"

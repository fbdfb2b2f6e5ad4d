from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lemonade.errors import EngineReplied
from lemonade.inference.completion import CompletionRequest, check_reply, prompts, shape
from lemonade.inference.echo import CompletionEditor, scored


def asked(**body: Any) -> tuple[CompletionRequest, bytes]:
    raw = msgspec.json.encode({"model": "m", "prompt": "x", **body})
    return msgspec.json.decode(raw, type=CompletionRequest), raw


def sent(**body: Any) -> list[dict[str, Any]]:
    """What the engine is sent for a body, once per choice."""
    request, raw = asked(**body)
    return [msgspec.json.decode(one) for one in shape(request, raw, prompts(request))]


def test_an_ordinary_request_is_not_encoded_again() -> None:
    for prompt in ("x", [5, 6]):
        request, raw = asked(prompt=prompt, stop=["a"], unknown=[1])
        (only,) = shape(request, raw, prompts(request))
        assert only is raw


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("a", ["a"]),
        (["a"], [["a"]]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ([[1, 2], [3]], [[1, 2], [3]]),
        (["a", [3]], ["a", [3]]),
    ],
)
def test_each_prompt_is_a_request(prompt: Any, expected: list[Any]) -> None:
    assert [one["prompt"] for one in sent(prompt=prompt)] == expected


def test_the_choices_of_a_prompt_follow_each_other() -> None:
    bodies = sent(prompt=["a", "b"], n=2, seed=7)
    assert [(one["prompt"], one["seed"]) for one in bodies] == [("a", 7), ("a", 8), ("b", 7), ("b", 8)]
    assert all("n" not in one for one in bodies)


def test_a_reply_without_choices_is_none() -> None:
    body = b'{"model":"m","choices":[{"text":"x"}]}'
    assert check_reply(body, "m")[0] is body
    assert msgspec.json.decode(check_reply(body, "other")[0])["model"] == "other"
    for bad in (b'{"model":"m"}', b'{"choices":[]}', b'{"choices":[{}]}', b"[]"):
        with pytest.raises(msgspec.MsgspecError):
            check_reply(bad, "m")


class Engine:
    """A lease on an engine that gives one answer after the other."""

    def __init__(self, *answers: dict[str, Any], status: int = 200) -> None:
        self.connection = self
        self.resident = self.launch = self
        self.name = "engine"
        self.status = status
        self.questions: list[tuple[str, Any]] = []
        self._answers = list(answers)

    async def request(self, method: str, path: str, body: bytes) -> Engine:
        self.questions.append((path, msgspec.json.decode(body)))
        return self

    async def read(self, limit: int | None = None) -> bytes:
        return msgspec.json.encode(self._answers.pop(0))

    def close(self) -> None: ...


def token(number: int, text: str, logprob: float | None, *others: tuple[str, float]) -> dict[str, Any]:
    top = [{"token": other, "logprob": value} for other, value in others]
    return {"id": number, "token": text, "logprob": logprob, "top_logprobs": top}


async def test_a_prompt_is_scored_by_making_the_engine_say_it() -> None:
    said = [token(6, "b", -0.5), token(7, "c", -2.0)]
    engine = Engine({"tokens": [5, 6, 7]}, {"content": "a"}, {"choices": [{"logprobs": {"content": said}}]})
    tokens = await scored(engine, "abc", 3)  # type: ignore[arg-type]
    assert [(one["token"], one["logprob"]) for one in tokens] == [("a", None), ("b", -0.5), ("c", -2.0)]
    path, body = engine.questions[2]
    assert path == "/v1/completions"
    assert (body["prompt"], body["grammar"], body["max_tokens"]) == ([5], "root ::= <[6]> <[7]>", 2)


async def test_a_prompt_that_the_engine_does_not_say_is_not_scored() -> None:
    engine = Engine({"content": "a"}, {"choices": [{"logprobs": {"content": [token(9, "z", -1.0)]}}]})
    with pytest.raises(EngineReplied) as caught:
        await scored(engine, [5, 6], 1)  # type: ignore[arg-type]
    assert caught.value.status == 501


async def test_log_probabilities_in_the_form_of_openai() -> None:
    request, _ = asked(echo=True, logprobs=1)
    said = {"choices": [{"logprobs": {"content": [token(6, "bc", -0.5, ("zz", -0.1), ("yy", -3.0))]}}]}
    editor = CompletionEditor(request, ["abc"])
    await editor.prepare(Engine({"tokens": [5, 6]}, {"content": "a"}, said))  # type: ignore[arg-type]
    choice = {"text": "d", "logprobs": {"content": [token(8, "d", -0.2, ("d", -0.2))]}}
    editor.edit(0, choice)
    editor.whole(0, choice)
    told: Any = choice["logprobs"]
    assert choice["text"] == "abcd"
    assert told["tokens"] == ["a", "bc", "d"]
    assert told["token_logprobs"] == [None, -0.5, -0.2]
    assert told["top_logprobs"] == [None, {"zz": -0.1, "bc": -0.5}, {"d": -0.2}]
    assert told["text_offset"] == [0, 1, 3]
    assert [one["token"] for one in told["content"]] == ["a", "bc", "d"]


def test_no_alternatives_but_the_token_itself() -> None:
    request, _ = asked(logprobs=0)
    editor = CompletionEditor(request, ["x"])
    choice: dict[str, Any] = {"text": "d", "logprobs": {"content": [token(8, "d", -0.2, ("e", -0.1))]}}
    editor.edit(0, choice)
    assert choice["logprobs"]["top_logprobs"] == [{"d": -0.2}]

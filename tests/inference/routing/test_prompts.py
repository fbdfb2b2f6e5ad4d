from __future__ import annotations

import msgspec
import pytest

from lemonade.catalog.policy.classifiers import Classifier, parse
from lemonade.inference.routing import prompts
from tests.catalog.policy.policies import LABELLED, LLM

CHOOSER = parse("c", LLM)
JUDGE = parse("c", LABELLED)


def test_what_a_model_is_asked() -> None:
    body = prompts.choice(CHOOSER, "rm -rf {x}", "judge")
    system, user = (message["content"] for message in body["messages"])
    assert "Is it risky?" in system
    assert "- SAFE\n- RISKY" in system
    assert user == "<request>\nrm -rf {x}\n</request>"
    assert (body["temperature"], body["max_tokens"]) == (0, 256)
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    schema = body["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["model"]["enum"] == ["SAFE", "RISKY"]
    scored = prompts.scoring(JUDGE, "x", "judge")["response_format"]["json_schema"]["schema"]
    assert scored["required"] == ["yes", "no"]


@pytest.mark.parametrize(
    "said",
    [
        '{"model": "RISKY", "rationale": "why"}',
        ' {"rationale": "why", "model": "RISKY"}\n',
        '```json\n{"model": "RISKY", "rationale": "why"}\n```',
        '```\n{"model": "RISKY", "rationale": "why"}```',
    ],
)
def test_a_choice(said: str) -> None:
    scores = prompts.read_choice(said, CHOOSER)
    assert scores.labels == {"SAFE": 0.0, "RISKY": 1.0}
    assert scores.rationale == "why"


@pytest.mark.parametrize(
    "said",
    [
        "RISKY",
        "",
        "{}",
        '{"model": "RISKY"}',
        '{"model": "RISKY", "rationale": ""}',
        '{"model": "risky", "rationale": "why"}',
        '{"model": "RISKY", "rationale": "why", "mood": "good"}',
        '{"model": "RISKY", "rationale": "why"} I hope this helps!',
        'Sure: {"model": "RISKY", "rationale": "why"}',
    ],
)
def test_what_is_no_choice(said: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        prompts.read_choice(said, CHOOSER)


def test_scores_are_brought_into_bounds() -> None:
    assert prompts.read_scores('{"yes": 1.5, "maybe": 1}', JUDGE).labels == {"yes": 1.0, "no": 0.0}
    assert prompts.read_scores('```json\n{"yes": -1, "no": 1}\n```', JUDGE).labels == {"yes": 0.0, "no": 1.0}


@pytest.mark.parametrize("said", ["0.5", '{"maybe": 1}', '{"yes": "high"}', "{", "[]"])
def test_what_is_no_scores(said: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        prompts.read_scores(said, JUDGE)


def test_the_text_of_an_answer() -> None:
    assert prompts.content(b'{"choices": [{"message": {"content": "x"}}]}') == "x"
    with pytest.raises(msgspec.MsgspecError):
        prompts.content(b'{"choices": []}')


def test_labels_with_braces_are_no_format() -> None:
    odd = Classifier(id="x", type="llm", model="m", prompt="{nothing}", labels=("{a}",))
    assert "{nothing}" in prompts.choice(odd, "x", "m")["messages"][0]["content"]

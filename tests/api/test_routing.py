"""Router models from outside, on fake engines."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon import Answer, Daemon, events, wait_for
from tests.engines.fake_provider import FakeProvider

SMALL, BIG = "small", "big"
CODE = {"id": "code", "match": {"keywords_any": ["bug"]}, "route_to": BIG, "outputs": {"reason": "code"}}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with two candidates, a judge and a model that makes vectors."""
    with Daemon(tmp_path_factory.mktemp("routing"), config={"max_loaded_models": 2}) as one:
        for name in (SMALL, BIG, "judge"):
            one.add_model(name)
        one.add_model("vectors", **{"llama.embedding_length": 3})
        where = str(one.models / "vectors.gguf")
        definition = {"model_name": "user.vectors", "recipe": "llamacpp", "checkpoint": where, "labels": ["embeddings"]}
        assert one.post("/v1/pull", {**definition, "source": "local_path"}).status == 200
        yield one


def policy(*rules: dict[str, Any], **routing: Any) -> dict[str, Any]:
    return {
        "version": "1",
        "recipe": "collection.router",
        "components": [SMALL, BIG, "judge", "vectors"],
        "routing": {"candidates": [SMALL, BIG], "default_model": SMALL, "rules": list(rules), **routing},
    }


def register(world: Daemon, name: str, document: dict[str, Any]) -> Answer:
    return world.post("/v1/models/register", {"model_name": f"user.{name}", **document})


def validated(world: Daemon, document: dict[str, Any], **more: Any) -> dict[str, Any]:
    answer = world.post("/v1/routing/validate", {"policy": document, **more})
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json()
    return found


@pytest.fixture(scope="module")
def coder(world: Daemon) -> str:
    assert register(world, "coder", policy(CODE)).status == 200
    return "user.coder"


def test_a_chat_goes_where_the_policy_says(world: Daemon, coder: str) -> None:
    answer = world.chat(coder, "a bug")
    assert answer.status == 200, answer.body
    assert answer.headers["x-lemonade-route"] == "code"
    told = answer.json()
    assert told["model"] == BIG
    assert told["choices"][0]["message"]["content"]
    assert told["x_lemonade_route"] == {
        "version": "1",
        "route_to": BIG,
        "matched_rule": "code",
        "default_used": False,
        "outputs": {"reason": "code"},
    }
    answer = world.chat("coder", "a soup", route_trace=True)
    assert answer.headers["x-lemonade-route"] == "default"
    assert answer.json()["x_lemonade_route"] == {
        "version": "1",
        "route_to": SMALL,
        "matched_rule": "",
        "default_used": True,
        "outputs": {},
        "trace": [{"condition": "keywords_any", "result": False}],
    }
    assert "x_lemonade_route" not in world.chat(SMALL, "a bug", route_trace=True).json()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("chat/completions", {"messages": [{"role": "user", "content": "a bug"}]}),
        ("chat/completions", {"messages": [{"role": "user", "content": "a bug"}], "n": 2}),
        ("completions", {"prompt": "a bug"}),
        ("completions", {"prompt": "a bug", "echo": True}),
        ("responses", {"input": "a bug"}),
        ("responses", {"input": [{"role": "user", "content": [{"type": "input_text", "text": "a bug"}]}]}),
    ],
)
def test_every_endpoint_for_text_whole_and_streamed(world: Daemon, coder: str, path: str, body: dict[str, Any]) -> None:
    whole = world.post(f"/v1/{path}", {"model": coder, **body})
    assert whole.status == 200, whole.body
    assert whole.json()["model"] == BIG
    decision = whole.json()["x_lemonade_route"]
    assert decision["matched_rule"] == "code"
    streamed = world.post(f"/v1/{path}", {"model": coder, "stream": True, **body})
    assert streamed.headers["x-lemonade-route"] == whole.headers["x-lemonade-route"] == "code"
    told = [json.loads(one) for one in events(streamed.body) if one != "[DONE]"]
    assert told[0]["x_lemonade_route"] == decision
    assert not any("x_lemonade_route" in one for one in told[1:])
    assert (told[0].get("response") or told[0])["model"] == BIG


def test_what_is_registered_is_shown_as_it_was_written(world: Daemon, coder: str) -> None:
    shown = world.get(f"/v1/models/{coder}").json()
    assert shown["version"] == "1"
    assert shown["routing"] == policy(CODE)["routing"]
    assert shown["recipe"] == "collection.router"
    again = {key: shown[key] for key in ("version", "recipe", "components", "routing")}
    assert register(world, "coder", again).status == 200
    assert world.get(f"/v1/models/{coder}").json() == shown
    assert world.chat(coder, "a bug").json()["x_lemonade_route"]["route_to"] == BIG
    assert world.post("/v1/load", {"model_name": coder}).status == 200


@pytest.mark.parametrize(
    ("document", "param", "words"),
    [
        (policy({**CODE, "route_to": "gone"}), "routing.rules[0].route_to", "one of the candidates"),
        (policy({**CODE, "match": {"regex": "(?=x)"}}), "routing.rules[0].match.regex", "looks ahead"),
        (
            policy(
                classifiers=[
                    {"id": "c", "type": "semantic_similarity", "model": "judge", "reference_phrases": {"a": ["b"]}}
                ]
            ),
            "routing.classifiers[0].model",
            "no embeddings",
        ),
        (
            policy(classifiers=[{"id": "c", "type": "zero_shot", "model": "judge", "labels": ["a"]}]),
            "routing.classifiers[0].model",
            "no classification model",
        ),
        ({**policy(CODE), "version": "2"}, "version", '"1"'),
    ],
)
def test_a_policy_that_cannot_be_followed_is_not_registered(
    world: Daemon, document: dict[str, Any], param: str, words: str
) -> None:
    for path in ("models/register", "pull"):
        answer = world.post(f"/v1/{path}", {"model_name": "user.broken", **document})
        assert answer.status == 400
        assert answer.error["param"] == param
        assert answer.error["message"].startswith("Invalid routing policy: ")
        assert words in answer.error["message"]
    assert world.get("/v1/models/user.broken").status == 404


def test_validate_follows_without_registering(world: Daemon) -> None:
    document = policy(CODE)
    assert validated(world, document, prompt="a bug") == {
        "decision": {
            "version": "1",
            "route_to": BIG,
            "matched_rule": "code",
            "default_used": False,
            "outputs": {"reason": "code"},
            "trace": [{"condition": "keywords_any", "result": True}],
        },
        "normalized_policy": document,
    }
    unknown = json.loads(json.dumps(document).replace(BIG, "not-here-yet"))
    assert validated(world, unknown, prompt="a bug")["decision"]["route_to"] == "not-here-yet"
    match = {"has_images": True, "has_tools": True, "metadata": {"key": "k", "equals": "v"}, "max_chars": 0}
    found = validated(world, policy({**CODE, "match": match}), has_images=True, has_tools=True, metadata={"k": "v"})[
        "decision"
    ]
    assert found["matched_rule"] == "code"
    assert len(found["trace"]) == 4


@pytest.mark.parametrize(
    ("body", "code", "param", "words"),
    [
        ({}, "missing_argument", "policy", "'policy' must be a JSON object"),
        ({"policy": None}, "missing_argument", "policy", "'policy' must be a JSON object"),
        ({"policy": []}, "invalid_argument", "policy", "'policy' must be an object"),
        ({"policy": policy(CODE), "prompt": 1}, "invalid_argument", "prompt", "'prompt' must be a string"),
        ({"policy": policy(CODE), "has_tools": 1}, "invalid_argument", "has_tools", "true or false"),
        ({"policy": policy(CODE), "metadata": {"a": 1}}, "invalid_argument", "metadata[...]", "a string"),
        ({"policy": {}}, "invalid_argument", "version", "Invalid routing policy: 'version' is missing"),
    ],
)
def test_validate_refuses(world: Daemon, body: dict[str, Any], code: str, param: str, words: str) -> None:
    answer = world.post("/v1/routing/validate", body)
    assert (answer.status, answer.error["code"], answer.error["param"]) == (400, code, param)
    assert words in answer.error["message"]


def classified(kind: dict[str, Any], match: dict[str, Any]) -> dict[str, Any]:
    return policy(
        {"id": "hit", "match": {"classifier": "c", **match}, "route_to": BIG}, classifiers=[{"id": "c", **kind}]
    )


LLM = {"type": "llm", "model": "judge", "prompt": "Is it risky?", "labels": ["SAFE", "RISKY"]}
SCORED = {"type": "classifier", "model": "judge", "labels": ["yes", "no"], "default_label": "yes"}
SIMILAR = {"type": "semantic_similarity", "model": "vectors", "reference_phrases": {"c": ["some phrase", "another"]}}


@pytest.fixture
def judge(world: Daemon) -> Iterator[Any]:
    """Lets the judge say something."""
    validated(world, classified(LLM, {"label": "SAFE"}), prompt="x")

    def say(text: str = "", **switches: Any) -> None:
        world.switch("judge", text=text, **switches)

    yield say
    world.switch("judge")


@pytest.mark.parametrize(
    ("kind", "match", "said", "step"),
    [
        (
            LLM,
            {"label": "RISKY"},
            {"model": "RISKY", "rationale": "it deletes"},
            {"result": True, "score": 1.0, "label": "RISKY", "rationale": "it deletes"},
        ),
        (
            LLM,
            {"label": "SAFE"},
            {"model": "RISKY", "rationale": "it deletes"},
            {"result": False, "score": 0.0, "label": "SAFE", "rationale": "it deletes"},
        ),
        (SCORED, {}, {"yes": 0.9, "no": 0.1}, {"result": True, "score": 0.9, "label": "yes"}),
        (SCORED, {"label": "no"}, {"yes": 0.9, "no": 0.1}, {"result": False, "score": 0.1, "label": "no"}),
    ],
)
def test_llms_as_classifiers(
    world: Daemon, judge: Any, kind: dict[str, Any], match: dict[str, Any], said: dict[str, Any], step: dict[str, Any]
) -> None:
    judge(json.dumps(said))
    decision = validated(world, classified(kind, match), prompt="rm -rf /")["decision"]
    assert decision["trace"] == [{"condition": "classifier:c", **step}]
    assert decision["route_to"] == (BIG if step["result"] else SMALL)
    asked = world.seen("judge")["requests"][-1]["body"]
    assert "rm -rf /" in asked["messages"][1]["content"]
    assert asked["temperature"] == 0


@pytest.mark.parametrize(
    "switches",
    [
        {"text": "RISKY, I would say."},
        {"error": {"status": 500, "json": {"error": {"message": "the engine is ill"}}}},
        {"empty_choices": True},
        {"tool_call": {"name": "f", "arguments": "{}"}},
    ],
)
def test_a_classifier_that_fails_never_fails_the_request(world: Daemon, judge: Any, switches: dict[str, Any]) -> None:
    judge(**switches)
    for on_error, route in (("match_true", BIG), ("match_false", SMALL)):
        document = classified({**LLM, "on_error": on_error}, {"label": "SAFE"})
        decision = validated(world, document, prompt="x")["decision"]
        assert decision["route_to"] == route
        (step,) = decision["trace"]
        assert step["result"] is (route == BIG)
        assert "score" not in step
        assert "'judge' could not be asked" in step["rationale"]


def test_a_text_that_is_too_long_for_the_judge_is_shortened(world: Daemon, judge: Any) -> None:
    judge(err400=True)
    before = len(world.seen("judge")["requests"])
    decision = validated(world, classified(LLM, {"label": "SAFE"}), prompt="word " * 1000)["decision"]
    lengths = [len(one["body"]["messages"][1]["content"]) for one in world.seen("judge")["requests"][before:]]
    assert len(lengths) == 9
    assert all(shorter < longer for longer, shorter in itertools.pairwise(lengths))
    assert decision["default_used"]


def test_a_model_that_is_not_there_counts_as_a_failure(world: Daemon) -> None:
    document = classified({**LLM, "model": "nobody"}, {"label": "SAFE"})
    document["components"].append("nobody")
    (step,) = validated(world, document, prompt="x")["decision"]["trace"]
    assert "'nobody' was not found" in step["rationale"]


def test_reference_phrases_are_embedded_once(world: Daemon) -> None:
    # The fake engine's vectors depend on the length of the text only.
    near = validated(world, classified(SIMILAR, {"label": "c", "min_score": 0.99}), prompt="eleven char")["decision"]
    assert near["route_to"] == BIG
    assert 0.99 < near["trace"][0]["score"] <= 1
    far = validated(world, classified(SIMILAR, {"label": "c", "min_score": 0.99}), prompt="a")["decision"]
    assert far["route_to"] == SMALL
    asked = [one["body"]["input"] for one in world.seen("vectors")["requests"]]
    assert asked == [["some phrase", "another"], ["eleven char"], ["a"]]


def test_helpers_have_pools_of_their_own_and_go_with_their_policies(world: Daemon) -> None:
    document = classified(LLM, {"label": "SAFE"})
    assert register(world, "helped", document).status == 200
    assert world.chat("user.helped", "x").status == 200
    assert world.chat(BIG).status == 200
    entry = world.entry("judge")
    assert entry["residency_class"] == "routing_helper"
    assert entry["slot_pool"].startswith("routing_helper/llm/")
    # Two LLMs may be loaded; the helper is none of them.
    assert {SMALL, BIG, "judge"} <= {one["model_name"] for one in world.loaded()}
    assert world.post("/v1/delete", {"model_name": "user.helped"}).status == 200
    wait_for(lambda: "judge" not in {one["model_name"] for one in world.loaded()})


def test_a_candidate_that_also_judges_is_no_helper(world: Daemon) -> None:
    document = policy(router={"type": "llm", "model": SMALL})
    del document["routing"]["rules"]
    world.chat(SMALL)
    starts = len(world.starts)
    world.switch(SMALL, text=json.dumps({"model": BIG, "rationale": "hard"}))
    assert register(world, "self", document).status == 200
    told = world.chat("user.self", "prove it", route_trace=True).json()["x_lemonade_route"]
    assert (told["route_to"], told["matched_rule"]) == (BIG, "__route_1")
    assert [step["label"] for step in told["trace"]] == [SMALL, BIG]
    assert world.entry(SMALL)["residency_class"] == "standard"
    world.switch(SMALL)
    assert len(world.starts) <= starts + 1
    assert world.post("/v1/delete", {"model_name": "user.self"}).status == 200


def test_decisions_and_switches_are_counted(world: Daemon, coder: str) -> None:
    def counted() -> tuple[int, int]:
        stats = world.get("/v1/stats").json()
        return stats["routing_decisions_total"], stats["routing_switches_total"]

    decisions, switches = counted()
    first = [{"role": "user", "content": "hello, a bug"}]
    later = [*first, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "soup"}]
    for messages in (first, first, later, later):
        assert world.post("/v1/chat/completions", {"model": coder, "messages": messages}).status == 200
    validated(world, policy(CODE), prompt="a bug")
    assert counted() == (decisions + 4, switches + 1)


def test_mistakes_are_told_before_a_model_is_asked(world: Daemon, coder: str) -> None:
    answer = world.chat(coder, "a bug", temperature="hot")
    assert (answer.status, answer.error["param"]) == (400, "temperature")
    assert world.chat(coder, "a bug", metadata="x").error["param"] == "metadata"


def test_a_candidate_that_cannot_be_loaded_is_an_error_of_its_own(world: Daemon) -> None:
    world.add_model("brief")
    document = {**policy(), "components": ["brief"]}
    document["routing"] |= {"candidates": ["brief"], "default_model": "brief"}
    wait_for(lambda: world.get("/v1/models/brief").status == 200)
    assert register(world, "short", document).status == 200
    (world.models / "brief.gguf").unlink()
    wait_for(lambda: world.get("/v1/models/brief").status == 404)
    answer = world.chat("user.short")
    assert (answer.status, answer.error["code"]) == (404, "model_not_found")


def test_a_policy_that_was_broken_by_hand_goes_to_its_default(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path)
    daemon.add_model(SMALL)
    rows: dict[str, Any] = {
        "open": {**policy({"id": "x"}), "components": ["extra.small"]},
        "shut": {**policy({"id": "x"}), "components": ["extra.small"]},
    }
    del rows["shut"]["routing"]["default_model"]
    (daemon.folder / "config" / "user_models.json").write_text(json.dumps(rows))
    with daemon:
        decision = daemon.chat("user.open").json()["x_lemonade_route"]
        assert (decision["route_to"], decision["default_used"]) == (SMALL, True)
        answer = daemon.chat("user.shut")
        assert (answer.status, answer.error["code"]) == (400, "model_load_refused")
        assert "Invalid routing policy" in answer.error["message"]


def test_candidates_and_judges_at_a_provider(world: Daemon) -> None:
    with FakeProvider("ck-CANARY") as fake:
        body = {"backend": "cloud", "provider": "afar", "base_url": fake.url, "api_key": "ck-CANARY"}
        assert world.post("/v1/install", {**body, "allow_insecure_http": True}).status == 200
        wait_for(lambda: world.get("/v1/models/afar.good").status == 200)
        llm = {**LLM, "id": "c", "model": "afar.good"}
        document = policy({**CODE, "route_to": "afar.good"}, classifiers=[llm])
        document["components"].append("afar.good")
        document["routing"]["candidates"].append("afar.good")
        assert register(world, "mixed", document).status == 200
        for stream in (False, True):
            answer = world.chat("user.mixed", "a bug", stream=stream)
            assert answer.headers["x-lemonade-route"] == "code"
            told = json.loads(events(answer.body)[0]) if stream else answer.json()
            assert told["model"] == told["x_lemonade_route"]["route_to"] == "afar.good"
            assert fake.requests[-1]["body"]["model"] == "good"
        assert world.chat("user.mixed", "soup").json()["model"] == SMALL
        judged = policy({"id": "r", "match": {"classifier": "c", "label": "SAFE"}, "route_to": BIG}, classifiers=[llm])
        judged["components"].append("afar.good")
        (step,) = validated(world, judged, prompt="rm -rf /")["decision"]["trace"]
        # It answers something else, whatever it is asked.
        assert "its answer cannot be used" in step["rationale"]
        asked = fake.requests[-1]["body"]
        assert "rm -rf /" in asked["messages"][1]["content"]
        assert asked["response_format"] == {"type": "json_object"}
        assert world.post("/v1/uninstall", {"backend": "cloud", "provider": "afar"}).status == 200

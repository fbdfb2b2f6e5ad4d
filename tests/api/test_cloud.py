"""Cloud providers as clients of the daemon see them: managing them, their models, their keys, Anthropic's API."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.daemon import Daemon, events, wait_for
from tests.engines.fake_provider import MODELS, FakeProvider
from tests.stream import Stream

KEY = "ck-CANARY-runtime-1"
FROM_ENVIRONMENT = "ck-CANARY-environment-2"
ASK = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def openai() -> Iterator[FakeProvider]:
    with FakeProvider(KEY) as one:
        yield one


@pytest.fixture(scope="module")
def anthropic() -> Iterator[FakeProvider]:
    with FakeProvider(FROM_ENVIRONMENT, wire="anthropic") as one:
        yield one


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, openai: FakeProvider, anthropic: FakeProvider) -> Iterator[Daemon]:
    """A daemon with `afar` (openai, key given while running), `claude` (anthropic, key of the environment), and the
    model `a` on a fake engine."""
    one = Daemon(
        tmp_path_factory.mktemp("site"),
        env={"LEMONADE_CLAUDE_API_KEY": FROM_ENVIRONMENT},
        config={"log_level": "debug"},
    )
    one.add_model("a")
    with one:
        install(one, openai, "afar", api_key=KEY)
        install(one, anthropic, "claude", wire_format="anthropic")
        yield one


def install(daemon: Daemon, fake: FakeProvider, name: str, **more: Any) -> dict[str, Any]:
    body = {"backend": "cloud", "provider": name, "base_url": fake.url, "allow_insecure_http": True, **more}
    answer = daemon.post("/v1/install", body)
    assert answer.status == 200, answer.body
    made: dict[str, Any] = answer.json()
    return made


def chat(daemon: Daemon, model: str, **more: Any) -> Any:
    return daemon.chat(model, **more)


# Managing.


def test_installing_changing_and_removing(site: Daemon, openai: FakeProvider) -> None:
    made = install(site, openai, "second", api_key=KEY)
    assert made == {
        "status": "success",
        "backend": "cloud",
        "provider": "second",
        "base_url": openai.url,
        "allow_insecure_http": True,
        "auth_header_name": "Authorization",
        "auth_header_prefix": "Bearer ",
        "wire_format": "openai",
        "models_discovered": len(MODELS),
        "auth_state": {"env_var_set": False, "runtime_key_set": True},
        "warnings": ["Plain http: prompts and the key can be read on the way."],
        "warning": "Plain http: prompts and the key can be read on the way.",
    }
    listed = {row["provider"]: row for row in site.get("/v1/cloud").json()["providers"]}
    assert listed.keys() == {"afar", "claude", "second"}
    assert listed["claude"]["auth_header_name"] == "x-api-key"
    told = {one["name"]: one for one in site.get("/v1/system-info").json()["cloud"]["providers"]}
    second = {**made, **made["auth_state"], "name": "second", "env_var": "LEMONADE_SECOND_API_KEY"}
    for key in ("status", "backend", "provider", "auth_state"):
        del second[key]
    assert (told.keys(), told["second"]) == (listed.keys(), second)
    changed = site.post("/v1/install", {"backend": "cloud", "provider": "second", "auth_header_name": "X-Key"}).json()
    assert (changed["auth_header_name"], changed["auth_header_prefix"], changed["models_discovered"]) == (
        "X-Key",
        "",
        0,
    )
    assert any("401" in warning for warning in changed["warnings"])
    removed = site.post("/v1/uninstall", {"backend": "cloud", "provider": "second"})
    assert removed.json() == {"status": "success", "backend": "cloud", "provider": "second", "models_evicted": 0}
    again = site.post("/v1/uninstall", {"backend": "cloud", "provider": "second"})
    assert (again.status, again.error["code"]) == (404, "provider_not_found")


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        ({}, 400, "missing_argument", "provider"),
        ({"provider": 5}, 400, "invalid_argument", "provider"),
        ({"provider": "user", "base_url": "https://x"}, 400, "invalid_argument", "provider"),
        ({"provider": "third"}, 400, "missing_argument", "base_url"),
        ({"provider": "third", "base_url": "x"}, 400, "invalid_argument", "base_url"),
        ({"provider": "third", "base_url": "http://x"}, 400, "insecure_http_requires_opt_in", "base_url"),
        ({"provider": "third", "base_url": "https://x", "wire_format": "x"}, 400, "invalid_argument", "wire_format"),
        ({"provider": "third", "base_url": "https://x", "api_key": "a b"}, 400, "invalid_argument", "api_key"),
        ({"provider": "third", "base_url": "https://x", "api_key": 5}, 400, "invalid_argument", "api_key"),
    ],
)
def test_what_cannot_be_installed(site: Daemon, body: dict[str, Any], status: int, code: str, param: str) -> None:
    answer = site.post("/v1/install", {"backend": "cloud", **body})
    assert (answer.status, answer.error["code"], answer.error["param"]) == (status, code, param)
    assert "third" not in [row["provider"] for row in site.get("/v1/cloud").json()["providers"]]


def test_an_engine_still_needs_its_recipe(site: Daemon) -> None:
    for path in ("/v1/install", "/v1/uninstall"):
        answer = site.post(path, {"backend": "vulkan"})
        assert (answer.error["code"], answer.error["param"]) == ("missing_argument", "recipe")


def test_keys(site: Daemon, openai: FakeProvider) -> None:
    install(site, openai, "keyed")
    assert "keyed.good" not in ids(site)
    given = site.post("/v1/cloud/auth", {"provider": "keyed", "api_key": KEY}).json()
    assert given["auth_state"] == {"env_var_set": False, "runtime_key_set": True}
    assert (given["provider"], given["models_discovered"]) == ("keyed", len(MODELS))
    assert "keyed.good" in ids(site)
    cleared = site.ask("DELETE", "/api/v1/cloud/auth/keyed").json()
    assert cleared == {
        "provider": "keyed",
        "cleared_runtime_key": True,
        "auth_state": {"env_var_set": False, "runtime_key_set": False},
    }
    assert "keyed.good" not in ids(site)
    missing = chat(site, "keyed.good")
    assert missing.status == 404
    assert "LEMONADE_KEYED_API_KEY" in missing.error["message"]
    site.post("/v1/uninstall", {"backend": "cloud", "provider": "keyed"})


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "missing_argument"),
        ({"provider": "afar"}, 400, "missing_argument"),
        ({"provider": "afar", "api_key": ""}, 400, "invalid_argument"),
        ({"provider": "afar", "api_key": 5}, 400, "invalid_argument"),
        ({"provider": "nope", "api_key": "x"}, 404, "provider_not_found"),
        ({"provider": "claude", "api_key": "x"}, 409, "auth_conflict"),
    ],
)
def test_keys_that_are_refused(site: Daemon, body: dict[str, Any], status: int, code: str) -> None:
    answer = site.post("/v1/cloud/auth", body)
    assert (answer.status, answer.error["code"]) == (status, code)
    if status == 409:
        assert answer.error["env_var"] == "LEMONADE_CLAUDE_API_KEY"


def test_a_name_that_is_not_installed_has_no_key(site: Daemon) -> None:
    answer = site.ask("DELETE", "/v1/cloud/auth/nope")
    assert (answer.status, answer.json()["cleared_runtime_key"]) == (200, False)


# The models.


def ids(daemon: Daemon) -> set[str]:
    return {row["id"] for row in daemon.get("/v1/models").json()["data"]}


def test_the_models_are_listed_like_local_ones(site: Daemon) -> None:
    assert {"a", "afar.good", "claude.good"} <= ids(site)
    row = site.get("/v1/models/afar.good").json()
    assert row["recipe"] == "cloud"
    assert row["cloud_provider"] == "afar"
    assert row["checkpoint"] == "good"
    assert row["labels"][:2] == ["cloud", "chat"]
    assert (row["downloaded"], row["suggested"], row["checkpoint_status"]) == (True, True, [])
    assert "size" not in row
    assert site.get("/v1/models/afar.good/files").json()["files"] == []


def test_facts_of_the_provider(site: Daemon, openai: FakeProvider) -> None:
    facts = {"context_length": 4096, "max_output_tokens": 512}
    openai.rows = [{"id": "acme/big", **facts, "pricing": {"prompt": "0.000001", "completion": "0.000002"}}]
    try:
        install(site, openai, "facts", api_key=KEY)
    finally:
        openai.rows = None
    row = site.get("/v1/models/facts.acme/big").json()
    expected = {**facts, "max_completion_tokens": 512, "cost_input_per_million": 1.0, "cost_output_per_million": 2.0}
    assert expected.items() <= row.items()
    site.post("/v1/uninstall", {"backend": "cloud", "provider": "facts"})
    assert site.get("/v1/models/facts.acme/big").status == 404


def test_loading_pulling_and_deleting(site: Daemon) -> None:
    assert site.post("/v1/load", {"model_name": "afar.good"}).status == 200
    assert site.post("/v1/pull", {"model_name": "afar.good"}).status == 200
    assert site.loaded() == [] or all(one["recipe"] != "cloud" for one in site.loaded())
    refused = site.post("/v1/delete", {"model_name": "afar.good"})
    assert (refused.status, "uninstall 'afar'" in refused.error["message"]) == (400, True)
    assert site.post("/v1/unload", {"model_name": "afar.good"}).error["code"] == "model_not_loaded"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", {"input": "x"}),
        ("/v1/rerank", {"query": "x", "documents": ["y"]}),
        ("/v1/tokenize", {"content": "x"}),
    ],
)
def test_what_a_provider_cannot_do(site: Daemon, path: str, body: dict[str, Any]) -> None:
    assert site.post(path, {"model": "afar.good", **body}).status == 400


def test_no_slot_is_held(site: Daemon) -> None:
    """A local model stays loaded, and is loaded, whatever is asked of providers."""
    assert chat(site, "a").status == 200
    with_stream = Stream(site, {"model": "afar.stalls"})
    assert len(with_stream.take(2)) == 2
    assert chat(site, "a").status == 200
    assert [one["model_name"] for one in site.loaded()] == ["a"]
    with_stream.hang_up()


def test_an_alias(site: Daemon) -> None:
    site.post("/internal/aliases", {"alias": "gpt-9", "target": "afar.good"})
    answer = chat(site, "gpt-9").json()
    assert (answer["model"], answer["choices"][0]["message"]["content"]) == ("gpt-9", "Hello from afar.")


def test_a_model_of_ones_own_of_a_provider(site: Daemon, openai: FakeProvider) -> None:
    """For what a provider runs and does not list."""
    row = {"model_name": "user.hidden", "recipe": "cloud", "checkpoint": "good", "cloud_provider": "afar"}
    assert site.post("/v1/models/register", row).status == 200
    assert chat(site, "user.hidden").json()["choices"][0]["message"]["content"] == "Hello from afar."
    assert openai.last["body"]["model"] == "good"
    assert site.post("/v1/delete", {"model_name": "user.hidden"}).status == 200


def test_vectors_of_a_model_of_ones_own(site: Daemon, openai: FakeProvider) -> None:
    row = {"model_name": "user.vectors", "recipe": "cloud", "checkpoint": "good", "cloud_provider": "afar"}
    assert site.post("/v1/models/register", {**row, "labels": ["embeddings"]}).status == 200
    answer = site.post("/v1/embeddings", {"model": "user.vectors", "input": ["a", "b"], "dimensions": 2}).json()
    assert [one["embedding"] for one in answer["data"]] == [[0.0, 0.5], [1.0, 0.5]], "in order"
    assert answer["model"] == "user.vectors"
    assert openai.last["body"] == {"model": "good", "input": ["a", "b"], "dimensions": 2}
    assert chat(site, "user.vectors").status == 400
    site.post("/v1/delete", {"model_name": "user.vectors"})


# Answers.


def test_a_chat_with_what_only_some_know(site: Daemon, openai: FakeProvider) -> None:
    tools = [{"type": "web_search"}, {"type": "function", "function": {"name": "weather"}}]
    answer = chat(site, "afar.calls", tools=tools, ctx_size=1000)
    assert answer.status == 200, answer.body
    assert answer.headers["x-request-id"] == "req-1"
    assert openai.last["body"]["tools"] == tools


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses"])
def test_streams(site: Daemon, path: str) -> None:
    more = {"/v1/completions": {"prompt": "x"}, "/v1/responses": {"input": "x"}}.get(path, {"messages": ASK})
    answer = site.post(path, {"model": "afar.good", "stream": True, **more})
    assert answer.headers["content-type"] == "text/event-stream"
    told = events(answer.body)
    assert told[-1] == "[DONE]"
    assert "Hello" in answer.body.decode()
    assert '"afar.good"' in told[0]


@pytest.mark.parametrize("stream", [False, True])
def test_a_failure_has_the_providers_status(site: Daemon, stream: bool) -> None:
    busy = chat(site, "afar.busy", stream=stream)
    assert (busy.status, busy.headers["retry-after"], busy.error["status_code"]) == (429, "7", 429)
    assert "x-should-retry" not in busy.headers
    denied = chat(site, "afar.denied", stream=stream)
    assert (denied.status, denied.headers["x-should-retry"]) == (403, "false")
    assert denied.error["message"] == "cloud (afar) request failed: The key *** may not do this"


def test_a_stream_that_breaks_ends_with_an_error(site: Daemon) -> None:
    told = events(chat(site, "afar.cut", stream=True).body)
    error = json.loads(told[-1])["error"]
    assert (error["code"], error["status_code"]) == ("provider_unreachable", 502)
    assert "[DONE]" not in told


def test_who_hangs_up_stops_the_provider(site: Daemon, openai: FakeProvider) -> None:
    stream = Stream(site, {"model": "afar.long"})
    stream.take(3)
    stream.hang_up()
    wait_for(lambda: openai.asked()[-1]["hung_up"], 15)


def test_the_figures_are_counted(site: Daemon) -> None:
    before = site.get("/v1/stats").json()["output_tokens_total"]
    chat(site, "afar.good")
    assert site.get("/v1/stats").json()["output_tokens_total"] == before + 4
    labels = 'device="cloud",model_name="afar.good",recipe="cloud"'
    assert labels in site.get("/metrics").body.decode()


def test_a_slow_provider_delays_nobody(site: Daemon, openai: FakeProvider) -> None:
    assert chat(site, "a").status == 200
    openai.listing = "hang"
    try:
        with subprocess.Popen(
            ["curl", "-s", f"{site.url}/v1/cloud/auth", "-d", json.dumps({"provider": "afar", "api_key": KEY})],
            stdout=subprocess.DEVNULL,
        ) as slow:
            began = time.monotonic()
            assert chat(site, "a").status == 200
            assert site.get("/v1/models").status == 200
            assert time.monotonic() - began < 10, "a discovery has 15 seconds"
            slow.kill()
    finally:
        openai.listing = ""
        site.post("/v1/cloud/auth", {"provider": "afar", "api_key": KEY})


# Anthropic's API.


def message(daemon: Daemon, model: str, **more: Any) -> Any:
    headers = more.pop("headers", {})
    query = more.pop("query", "")
    body = {"model": model, "max_tokens": 9, "messages": ASK, **more}
    return daemon.post(f"/v1/messages{query}", body, headers=headers)


def test_a_message(site: Daemon, anthropic: FakeProvider) -> None:
    headers = {
        "anthropic-beta": "x-1",
        "anthropic-version": "2024-01-01",
        "x-api-key": "the daemon's own",
        "cookie": "a=b",
    }
    body = {"system": [{"type": "text", "text": "be kind"}], "ctx_size": 5, "metadata": {"user_id": "1"}}
    answer = message(site, "claude.good", headers=headers, query="?beta=true", **body)
    assert answer.status == 200, answer.body
    assert answer.json()["content"] == [{"type": "text", "text": "Hello from afar."}]
    assert answer.json()["model"] == "good-2026-01-01", "as it came"
    seen = anthropic.last
    assert seen["path"] == "/v1/messages?beta=true"
    assert seen["body"] == {"model": "good", "max_tokens": 9, "messages": ASK, **body}
    assert (seen["headers"]["anthropic-beta"], seen["headers"]["anthropic-version"]) == ("x-1", "2024-01-01")
    assert seen["headers"]["x-api-key"] == FROM_ENVIRONMENT
    message(site, "claude.good", headers={"anthropic-beta": "schön"})
    assert anthropic.last["headers"]["anthropic-version"] == "2023-06-01"
    assert "anthropic-beta" not in anthropic.last["headers"]


def test_tokens_are_counted(site: Daemon, anthropic: FakeProvider) -> None:
    answer = site.post("/v1/messages/count_tokens", {"model": "claude.good", "messages": ASK})
    assert (answer.status, answer.json()) == (200, {"input_tokens": 9})
    assert anthropic.last["body"] == {"model": "good", "messages": ASK}
    refused = site.post("/v1/messages/count_tokens", {"model": "afar.good", "messages": ASK})
    assert (refused.status, refused.json()["type"]) == (400, "error")


def test_a_stream_of_messages_is_passed_on_byte_for_byte(site: Daemon, anthropic: FakeProvider) -> None:
    answer = message(site, "claude.good", stream=True)
    kinds = [json.loads(event)["type"] for event in events(answer.body)]
    assert kinds[0] == "message_start"
    assert kinds[-1] == "message_stop"
    assert "ping" in kinds
    assert b"[DONE]" not in answer.body
    direct = subprocess.run(
        [
            *("curl", "-s", f"{anthropic.url}/messages", "-H", f"x-api-key: {FROM_ENVIRONMENT}"),
            *("-H", "anthropic-version: 2023-06-01", "-H", "content-type: application/json"),
            *("-d", json.dumps({"model": "good", "max_tokens": 9, "messages": ASK, "stream": True})),
        ],
        capture_output=True,
        check=True,
    ).stdout
    assert answer.body.replace(b": ping\n\n", b"") == direct


@pytest.mark.parametrize(
    ("model", "more", "status", "kind"),
    [
        ("claude.busy", {}, 429, "rate_limit_error"),
        ("claude.denied", {}, 403, "invalid_request_error"),
        ("claude.html", {}, 502, "api_error"),
        ("claude.hangs-up", {}, 502, "api_error"),
        ("claude.moved", {}, 502, "api_error"),
        ("claude.down", {}, 503, "api_error"),
        ("nobody", {}, 404, "not_found_error"),
        ("claude.good", {"messages": 5}, 400, "invalid_request_error"),
        ("", {}, 400, "invalid_request_error"),
        ("afar.good", {}, 400, "invalid_request_error"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_failures_in_anthropics_words(
    site: Daemon, model: str, more: dict[str, Any], status: int, kind: str, stream: bool
) -> None:
    answer = message(site, model, stream=stream, **more)
    assert answer.status == status
    assert answer.json()["type"] == "error"
    assert answer.error["type"] == kind
    assert isinstance(answer.error["message"], str)


def test_a_stream_of_messages_that_breaks(site: Daemon) -> None:
    answer = message(site, "claude.cut", stream=True)
    last = answer.body.decode().strip().split("\n\n")[-1]
    assert last.startswith("event: error\ndata: ")
    assert json.loads(last.partition("data: ")[2])["error"]["type"] == "api_error"


def test_a_chat_of_an_anthropic_model_says_where_to_ask(site: Daemon) -> None:
    answer = chat(site, "claude.good")
    assert (answer.status, "POST /v1/messages" in answer.error["message"]) == (400, True)


def test_the_daemons_own_key_refuses_in_anthropics_words(make_daemon: Callable[..., Daemon]) -> None:
    with make_daemon(env={"LEMONADE_API_KEY": "sk-right"}) as one:
        answer = message(one, "x")
        assert (answer.status, answer.json()["type"], answer.error["type"]) == (401, "error", "authentication_error")
        assert message(one, "x", headers={"x-api-key": "sk-right"}).status == 404


# Keys are nowhere.


def test_after_a_restart_providers_are_there_and_runtime_keys_are_not(
    make_daemon: Callable[..., Daemon], openai: FakeProvider, anthropic: FakeProvider
) -> None:
    one = make_daemon(env={"LEMONADE_CLAUDE_API_KEY": FROM_ENVIRONMENT})
    with one:
        install(one, openai, "afar", api_key=KEY)
        install(one, anthropic, "claude", wire_format="anthropic")
        one.stop()
    with one:
        assert one.get("/v1/models/claude.good").status == 200, "at once"
        assert "afar.good" not in ids(one)
        states = {row["provider"]: row["auth_state"] for row in one.get("/v1/cloud").json()["providers"]}
        assert states["afar"] == {"env_var_set": False, "runtime_key_set": False}
        assert states["claude"] == {"env_var_set": True, "runtime_key_set": False}


def test_keys_are_nowhere(site: Daemon, openai: FakeProvider, anthropic: FakeProvider) -> None:
    """Looked for after everything that could tell of them: echoes of providers, failures, processes, files."""
    answers = [
        *(
            chat(site, f"afar.{name}", stream=stream)
            for name in ("tells", "denied", "hangs-up")
            for stream in (False, True)
        ),
        *(message(site, f"claude.{name}", stream=stream) for name in ("tells", "denied") for stream in (False, True)),
        site.post("/v1/cloud/auth", {"provider": "nope", "api_key": KEY}),
        site.post("/v1/cloud/auth", {"provider": "claude", "api_key": KEY}),
        site.post("/v1/cloud/auth", {"provider": "afar", "api_key": f"{KEY}\r\nx: y"}),
        site.post("/v1/install", {"backend": "cloud", "provider": "Bad!", "api_key": KEY}),
        site.post("/v1/install", {"backend": "cloud", "provider": "leak", "base_url": f"https://x:{KEY}@h/v1"}),
        site.post("/internal/set", {"cloud_providers": [{"name": "x", "api_key": KEY}]}),
        site.post("/v1/params", {"cloud_providers": [{"name": "x", "api_key": KEY}]}),
        *(
            site.get(path)
            for path in ("/v1/cloud", "/internal/config", "/v1/health", "/metrics", "/v1/stats", "/v1/models")
        ),
        site.get("/v1/system-info"),
        site.get("/internal/config?origin=true"),
    ]
    answers.append(site.post("/v1/cloud/auth", {"provider": "afar", "api_key": "ck-CANARY-wrong-3"}))
    site.post("/v1/cloud/auth", {"provider": "afar", "api_key": KEY})
    assert chat(site, "a").status == 200
    for answer in answers:
        assert b"CANARY" not in answer.body, answer.body
        assert "CANARY" not in str(answer.headers)
    assert "CANARY" not in site.log
    assert site.process is not None
    children = [
        int(each) for each in subprocess.run(["ps", "-A", "-o", "pid="], capture_output=True, text=True).stdout.split()
    ]
    family = [pid for pid in children if pid != site.process.pid and _parent_of(pid) == site.process.pid]
    assert family, "the engine and the guard"
    for pid in [site.process.pid, *family]:
        assert b"CANARY" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    for pid in family:
        assert b"CANARY" not in Path(f"/proc/{pid}/environ").read_bytes()
    for path in site.folder.rglob("*"):
        if path.is_file():
            assert b"CANARY" not in path.read_bytes(), path


def _parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError):
        return 0


async def test_keys_are_not_in_the_log_that_is_followed(site: Daemon) -> None:
    async with aiohttp.ClientSession() as session, session.ws_connect(f"{site.url}/v1/logs/stream") as socket:
        await socket.send_json({"type": "logs.subscribe", "after_seq": None})
        told = await socket.receive_str()
    assert "cloud provider" in told
    assert "CANARY" not in told

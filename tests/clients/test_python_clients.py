"""LangChain, LiteLLM, Instructor and llm against a daemon with real weights: each does once what its users do, in an
environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.clients.environment import python, run_python
from tests.clients.meaning import TEXTS, close
from tests.daemon import Daemon

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    """LiteLLM carries the tables of tokens that LangChain would fetch."""
    found = next(python().parent.parent.glob("**/litellm/litellm_core_utils/tokenizers"))
    return {"TIKTOKEN_CACHE_DIR": str(found), "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LANGSMITH_TRACING": "false"}


@pytest.fixture(scope="module")
def langchain(world: Daemon, environment: dict[str, str]) -> dict[str, Any]:
    seen: dict[str, Any] = run_python("with_langchain.py", f"{world.url}/v1", env=environment)
    return seen


@pytest.fixture(scope="module")
def litellm(world: Daemon, environment: dict[str, str]) -> dict[str, Any]:
    seen: dict[str, Any] = run_python("with_litellm.py", f"{world.url}/v1", env=environment)
    return seen


@pytest.mark.parametrize("way", ["stream", "responses_stream"])
def test_langchain_streams(langchain: dict[str, Any], way: str) -> None:
    stream = langchain[way]
    assert stream["text"] == langchain["chat"] != ""
    assert stream["pieces"] > 20
    assert stream["usage"]["output_tokens"] == 40


def test_langchain_calls_tools(langchain: dict[str, Any]) -> None:
    assert langchain["tools"]["call"] == "weather"
    assert langchain["tools"]["result"].startswith("sunny in ")
    assert langchain["tools"]["answer"]


def test_langchain_fills_a_model(langchain: dict[str, Any]) -> None:
    assert isinstance(langchain["object"]["name"], str)
    assert isinstance(langchain["object"]["people"], int)


def test_langchain_embeds(world: Daemon, langchain: dict[str, Any]) -> None:
    assert close(langchain["embeddings"])
    assert len(langchain["token_embeddings"]) == len(TEXTS)
    sent = world.seen("numbers")["requests"][-1]["body"]["input"]
    assert all(isinstance(token, int) for text in sent for token in text)


def test_litellm(litellm: dict[str, Any]) -> None:
    assert litellm["stream"]["text"] == litellm["chat"] != ""
    assert litellm["stream"]["tokens"] == 40
    assert litellm["stream"]["pieces"] > 20
    assert litellm["tools"]["call"] == "weather"
    assert litellm["tools"]["arguments"]["place"] in ("Paris", "Rome")
    assert litellm["object"]["place"] in ("Paris", "Rome")
    assert close(litellm["embeddings"])
    assert litellm["responses_stream"][0] == "response.created"
    assert litellm["responses_stream"][-1] in ("response.completed", "response.incomplete")
    assert "response.output_text.delta" in litellm["responses_stream"]
    assert litellm["missing"] == 404


def test_instructor(world: Daemon, environment: dict[str, str]) -> None:
    seen = run_python("with_instructor.py", f"{world.url}/v1", env=environment)
    assert seen["chat"]
    for city in (seen["json_schema_mode"], seen["tool_call"], seen["responses"], seen["partial"]["last"]):
        assert city["name"] in ("Paris", "Rome")
        assert isinstance(city["is_capital"], bool)
    assert seen["partial"]["pieces"] > 2


def test_llm(world: Daemon, tmp_path: Path) -> None:
    entry = {"model_id": "local", "model_name": "smol", "api_base": f"{world.url}/v1"}
    entry |= {"supports_schema": True, "supports_tools": True}
    # JSON is YAML.
    (tmp_path / "extra-openai-models.yaml").write_text(json.dumps([entry]))
    # It takes embeddings from OpenAI alone, under OpenAI's names; the library in it takes the address from here.
    assert world.post("/internal/aliases", {"alias": "text-embedding-3-small", "target": "vectors"}).status == 200
    env = {"LLM_USER_PATH": str(tmp_path), "OPENAI_API_KEY": "none needed", "OPENAI_BASE_URL": f"{world.url}/v1"}
    seen = run_python("with_llm.py", env=env)
    assert "".join(seen["stream"]) == seen["chat"] != ""
    assert len(seen["stream"]) > 20
    assert isinstance(seen["schema"]["age"], int)
    assert seen["tools"]
    assert close(seen["embeddings"])
    command = [str(python()), "-m", "llm", "-m", "local", "-o", "temperature", "0", "-o", "max_tokens", "60"]
    question = "What is the capital of France?"
    ran = subprocess.run([*command, question], env={**os.environ, **env}, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == seen["chat"].strip()

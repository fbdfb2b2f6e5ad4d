"""A daemon with a model of each kind that the text endpoints ask for, on fake engines."""

from __future__ import annotations

from typing import Any

from tests.daemon import Daemon

#: What each endpoint needs at least.
MINIMAL: dict[str, dict[str, Any]] = {
    "chat/completions": {"model": "a", "messages": [{"role": "user", "content": "x"}]},
    "completions": {"model": "a", "prompt": "x"},
    "responses": {"model": "a", "input": "x"},
    "embeddings": {"model": "vectors", "input": "x"},
    "rerank": {"model": "ranks", "query": "x", "documents": ["x y", "z"]},
}


def add_models(daemon: Daemon) -> None:
    """`vectors` makes embeddings, `ranks` ranks; the names in `MINIMAL`. The daemon runs already."""
    for name, label in (("vectors", "embeddings"), ("ranks", "reranking")):
        daemon.add_model(name, **{"llama.embedding_length": 3})
        definition = {"model_name": f"user.{name}", "recipe": "llamacpp", "labels": [label], "source": "local_path"}
        answer = daemon.post("/v1/pull", {**definition, "checkpoint": str(daemon.models / f"{name}.gguf")})
        assert answer.status == 200, answer.body


def seen(daemon: Daemon, model: str) -> list[dict[str, Any]]:
    """The bodies that the engine of a loaded model was asked, but for those of its checks."""
    names = [entry["model_name"] for entry in daemon.loaded()]
    requests = daemon.record(names.index(model))["requests"]
    return [request["body"] for request in requests if request["body"] is not None]

"""The daemon that clients talk to in their tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bert import minilm
from tests.daemon import Daemon
from tests.weights import smollm2

#: Seconds for a test that may be the one that installs the clients first, on a machine that is busy with other tests.
LONGEST = 900


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LONGEST))


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with real weights, `smol` (chat) and `vectors` (embeddings), and `numbers`, an embedding model that the
    fake engine runs."""
    # Threads that wait by spinning starve each other where other tests run beside these.
    env = {"OMP_WAIT_POLICY": "passive"}
    one = Daemon(tmp_path_factory.mktemp("world"), env=env, config={"max_loaded_models": 3})
    (one.models / "smol.gguf").symlink_to(smollm2())
    one.add_model("numbers-file")
    with one:
        real = {"llamacpp_backend": "cpu"}
        for name, file, options in (("vectors", minilm(), real), ("numbers", one.models / "numbers-file.gguf", {})):
            definition = {"model_name": f"user.{name}", "recipe": "llamacpp", "labels": ["embeddings"]}
            added = one.post("/v1/models/register", {**definition, "checkpoint": str(file), "recipe_options": options})
            assert added.status == 200, added.body
        assert one.post("/v1/models/smol/options", real).status == 200
        yield one

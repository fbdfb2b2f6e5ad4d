"""Speculation that a model's labels ask for, on its whole way to llama.cpp."""

from __future__ import annotations

from typing import Any

import pytest

from lemonade.catalog.options import MTP
from tests.tiny_models import predicting_model


@pytest.mark.real
def test_a_model_with_a_layer_for_prediction_uses_it(make_daemon: Any) -> None:
    daemon = make_daemon(fake_engine=False)
    (daemon.models / "Seer.gguf").write_bytes(predicting_model().read_bytes())
    with daemon:
        assert "mtp" in daemon.get("/v1/models/Seer").json()["labels"]
        answer = daemon.chat("Seer", max_tokens=60, temperature=0)
        assert answer.status == 200
        assert answer.json()["timings"]["draft_n"] > 0
        assert MTP[1] in daemon.loaded()[0]["recipe_options"]["llamacpp_args"]

        plain = {"model_name": "Seer", "llamacpp_args": "--spec-type none"}
        assert daemon.post("/v1/load", plain).status == 200
        assert "draft_n" not in daemon.chat("Seer", max_tokens=60, temperature=0).json()["timings"]

"""Several requests at once in one real engine."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.daemon import Answer, Daemon
from tests.weights import smollm2

CONTEXT = 256


@pytest.mark.real
def test_slots_share_one_context_of_which_each_may_take_the_whole(make_daemon: Callable[..., Daemon]) -> None:
    one = make_daemon(fake_engine=False)
    (one.models / "smol.gguf").symlink_to(smollm2())

    def long(number: int, tokens: int = 10) -> Answer:
        return one.chat("smol", f"{number} " + "word " * 140, max_tokens=tokens, ignore_eos=True)

    with one:
        loaded = one.post(
            "/v1/load", {"model_name": "smol", "ctx_size": CONTEXT, "llamacpp_args": "--parallel 2 --cache-ram 0"}
        )
        assert loaded.status == 200, loaded.body
        assert [slot["n_ctx"] for slot in one.get("/v1/slots").json()] == [CONTEXT, CONTEXT]
        assert one.get("/v1/models/smol").json()["context_length"] == CONTEXT
        assert long(1).status == 200, "more than half of the context"
        with ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(lambda number: long(number, 60), (2, 3)))
        (refused, *_) = (answer for answer in answers if answer.status != 200)
        assert (refused.status, refused.error["code"]) == (503, "context_shared")
        assert refused.headers["retry-after"] == "1"
        assert long(4).status == 200

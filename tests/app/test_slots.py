"""The slots of a real engine: several requests at once, and conversations on the disk."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

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


@pytest.mark.real
def test_a_conversation_is_saved_and_restored(make_daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    one = make_daemon(fake_engine=False)
    (one.models / "smol.gguf").symlink_to(smollm2())
    folder = tmp_path / "slots"
    folder.mkdir()

    def act(action: str, **body: str) -> Answer:
        return one.post(f"/v1/slots/0?action={action}", body)

    def cached() -> int:
        answer = one.chat("smol", "Tell me of the sea.", max_tokens=2).json()
        return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])

    with one:
        assert cached() == 0
        for action in ("save", "restore", "erase"):
            refused = act(action, filename="sea")
            assert (refused.status, refused.headers["x-should-retry"]) == (501, "false")
            assert "--slot-save-path" in refused.error["message"]
        arguments = f"--slot-save-path {folder} --cache-ram 0"
        assert one.post("/v1/load", {"model_name": "smol", "llamacpp_args": arguments}).status == 200
        assert cached() == 0
        assert act("save").error["code"] == "missing_argument"
        assert act("save", filename="../sea").status == 400
        saved = act("save", filename="sea").json()
        assert saved["n_saved"] > 0
        assert saved["n_written"] == (folder / "sea").stat().st_size
        assert act("erase").json()["n_erased"] == saved["n_saved"]
        assert cached() == 0
        assert act("erase").status == 200
        # Also in another process.
        assert one.post("/v1/unload", {"model_name": "smol"}).status == 200
        assert one.post("/v1/load", {"model_name": "smol", "llamacpp_args": arguments}).status == 200
        assert act("restore", filename="sea").json()["n_restored"] == saved["n_saved"]
        assert cached() > 0

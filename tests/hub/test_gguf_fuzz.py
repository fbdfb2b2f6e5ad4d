"""A part of what `fuzz_gguf.py` does, which also looks at times and reads many more."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

from tests.daemon import Daemon
from tests.hub.fuzz_gguf import MAX_BYTES, mutants, outcome


def test_damaged_headers_are_read_or_refused_in_little_memory(tmp_path: Path) -> None:
    outcomes = set()
    path = tmp_path / "m.gguf"
    tracemalloc.start()
    try:
        for number, content in enumerate(mutants(1000)):
            path.write_bytes(content)
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            outcomes.add(outcome(path))
            assert tracemalloc.get_traced_memory()[1] - before < MAX_BYTES, f"header {number}"
    finally:
        tracemalloc.stop()
    assert outcomes == {"read", "refused"}


def test_a_folder_full_of_damaged_files_is_listed(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path)
    for number, content in enumerate(mutants(150, seed=1)):
        (daemon.models / f"broken-{number}.gguf").write_bytes(content)
    daemon.add_model("good")
    with daemon:
        answer = daemon.get("/v1/models")
        assert answer.status == 200
        assert "good" in {row["id"] for row in answer.json()["data"]}
        assert daemon.chat("good").status == 200
        assert "Traceback" not in daemon.log

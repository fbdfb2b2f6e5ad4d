"""What was promised is on the disk, whatever happens to the daemon."""

from __future__ import annotations

import http.client
import json
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.daemon import Daemon

COUNT = 50


def definition(number: int) -> dict[str, Any]:
    return {"model_name": f"user.M{number}", "recipe": "llamacpp", "checkpoint": f"o/n{number}-GGUF:Q4_0"}


def write(daemon: Daemon, number: int) -> list[str]:
    """One client's changes; those that were answered with success."""
    done = []
    changes: list[tuple[str, str, str, Any]] = [
        ("models", "POST", "/v1/models/register", definition(number)),
        ("options", "POST", f"/v1/models/M{number}/options", {"ctx_size": 1000 + number}),
        ("alias", "POST", "/internal/aliases", {"alias": f"alias{number}", "target": f"M{number}"}),
    ]
    if number % 5 == 0:
        changes.append(("deleted", "POST", "/v1/delete", {"model": f"user.M{number}"}))
    for name, method, path, body in changes:
        try:
            answer = daemon.ask(method, path, body)
        except (OSError, http.client.HTTPException):
            return done
        assert answer.status == 200, answer.body
        done.append(name)
    return done


class Reader(threading.Thread):
    """Reads the files again and again, as another program would."""

    def __init__(self, files: list[Path]) -> None:
        super().__init__(daemon=True)
        self.files = files
        self.stopped = threading.Event()
        self.broken: list[str] = []
        self.reads = 0

    def run(self) -> None:
        while not self.stopped.is_set():
            for file in self.files:
                try:
                    text = file.read_text()
                except FileNotFoundError:
                    continue
                try:
                    json.loads(text)
                    self.reads += 1
                except ValueError:
                    self.broken.append(f"{file.name}: {text[:100]!r}")


def test_many_clients_and_kills(make_daemon: Callable[..., Daemon]) -> None:
    one = make_daemon()
    config, cache = one.folder / "config", one.folder / "cache"
    models, options, aliases = config / "user_models.json", config / "recipe_options.json", cache / "aliases.json"
    reader = Reader([models, options, aliases])
    reader.start()
    promised: dict[int, list[str]] = {}
    try:
        for round_ in range(3):
            one.start()
            numbers = range(round_ * COUNT, (round_ + 1) * COUNT)
            with ThreadPoolExecutor(COUNT) as pool:
                futures = {number: pool.submit(write, one, number) for number in numbers}
                if round_ < 2:
                    while not any(future.done() for future in futures.values()):
                        time.sleep(0.002)
                    one.stop(signal.SIGKILL)
                promised |= {number: future.result(timeout=60) for number, future in futures.items()}
        last = {row["id"] for row in one.get("/v1/models?show_all=true").json()["data"]}
    finally:
        reader.stopped.set()
        reader.join(10)
    assert reader.broken == [] and reader.reads > 0
    kept = {"models": json.loads(models.read_text()), "options": json.loads(options.read_text())}
    names = json.loads(aliases.read_text())
    for number, done in promised.items():
        if "deleted" in done:
            assert f"M{number}" not in kept["models"]
        elif number % 5 and "models" in done:
            # A delete that was under way when the daemon was killed may have been done or not.
            assert f"M{number}" in kept["models"] and f"M{number}" in last
        if "options" in done:
            assert kept["options"][f"user.M{number}"] == {"ctx_size": 1000 + number}
        if "alias" in done:
            assert names[f"alias{number}"] == f"M{number}"
    assert sum("alias" in done for done in promised.values()) >= COUNT
    assert any(len(done) < 3 for done in promised.values()), "nobody was interrupted"
    assert not list(config.glob("*.corrupted")) and not list(cache.glob("*.corrupted"))

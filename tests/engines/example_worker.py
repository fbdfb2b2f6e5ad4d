"""An engine for the tests of the worker: it computes next to nothing."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from lemonade.engines.worker import Cancelled, Job, Operation, Reply, concurrent
from lemonade.errors import InvalidArgument, ModelLoadError

events: list[str] = []


def operations(config: dict[str, Any]) -> Mapping[str, Operation]:
    if refusal := config.get("refuse"):
        raise ModelLoadError(refusal)
    return {
        "/echo": lambda job: {"query": job.query, "size": len(job.body), "config": config, "pid": os.getpid()},
        "/refuse": refuse,
        "/fail": fail,
        "/stream": stream,
        "/slow": slow,
        "/stuck": stuck,
        "/events": events_so_far,
        "/key": lambda job: [name for name in os.environ if "WORKER_KEY" in name],
    }


def refuse(job: Job) -> None:
    raise InvalidArgument("'voice' must be one of: a, b.", param="voice")


def fail(job: Job) -> None:
    raise RuntimeError("the library is unhappy")


def stream(job: Job) -> Reply:
    def pieces() -> Iterator[bytes]:
        try:
            for number in range(int(job.query["pieces"])):
                if number == int(job.query.get("fail_at", -1)):
                    raise InvalidArgument("no more of this", param="pieces")
                yield b"%d\n" % number
        finally:
            events.append("stream closed")

    return Reply(pieces(), "text/plain", {"X-Example": "yes"})


def slow(job: Job) -> dict[str, str]:
    events.append(f"begin {job.query['name']}")
    try:
        until = time.monotonic() + float(job.query["seconds"])
        while time.monotonic() < until:
            time.sleep(0.01)
            job.check()
    except Cancelled:
        events.append(f"cancelled {job.query['name']}")
        raise
    events.append(f"end {job.query['name']}")
    return {}


def stuck(job: Job) -> dict[str, str]:
    with job.unstoppable():
        time.sleep(60)
    return {}


@concurrent
def events_so_far(job: Job) -> list[str]:
    print("looked at", file=sys.stderr)
    return list(events)

"""The figures that engines put into their answers: `usage`, and llama.cpp's `timings`.

They are read from where the answer is looked into anyway: the typed decoding of a whole answer, the last events of a
stream.
"""

from __future__ import annotations

import msgspec

from lemonade.system.metrics import Measurement

NO_FIGURES = msgspec.Raw(b"null")


class Details(msgspec.Struct):
    """What `usage` says of the prompt's tokens."""

    cached_tokens: int | None = None


class Usage(msgspec.Struct):
    """Token counts, in the words of chats and completions or in those of responses."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    prompt_tokens_details: Details | None = None
    input_tokens_details: Details | None = None


class Timings(msgspec.Struct):
    """llama.cpp's own: counts of tokens, times in milliseconds."""

    cache_n: int | None = None
    prompt_n: int | None = None
    prompt_ms: float | None = None
    predicted_n: int | None = None
    predicted_per_second: float | None = None


class _Response(msgspec.Struct):
    usage: Usage | None = None


class _Event(msgspec.Struct):
    usage: Usage | None = None
    timings: Timings | None = None
    response: _Response | None = None


_usage_decoder = msgspec.json.Decoder(Usage | None)
_timings_decoder = msgspec.json.Decoder(Timings | None)
_event_decoder = msgspec.json.Decoder(_Event)


def measured(usage: msgspec.Raw, timings: msgspec.Raw = NO_FIGURES) -> Measurement | None:
    """The figures of a whole answer, or None if there are none or they are no figures."""
    try:
        return measure(_usage_decoder.decode(usage), _timings_decoder.decode(timings))
    except (msgspec.MsgspecError, RecursionError):
        return None


def measured_stream(tail: bytes) -> Measurement | None:
    """The figures in the last events of a stream."""
    usage: Usage | None = None
    timings: Timings | None = None
    for block in reversed(tail.split(b"\n\n")):
        # Inside a text the quotation marks would be escaped.
        if b'"usage":' not in block and b'"timings":' not in block:
            continue
        try:
            event = _event_decoder.decode(block[block.index(b"data:") + 5 :])
        except (msgspec.MsgspecError, ValueError, RecursionError):
            continue
        usage = usage or event.usage or (event.response.usage if event.response else None)
        timings = timings or event.timings
        if usage is not None and timings is not None:
            break
    return measure(usage, timings)


def measure(usage: Usage | None, timings: Timings | None) -> Measurement | None:
    """Both sources as one. `timings` wins, since `usage` does not tell what was computed from what was remembered."""
    if usage is None and timings is None:
        return None
    usage, timings = usage or Usage(), timings or Timings()
    details = usage.prompt_tokens_details or usage.input_tokens_details or Details()
    cached = timings.cache_n if timings.cache_n is not None else details.cached_tokens
    prompt = usage.prompt_tokens if usage.prompt_tokens is not None else usage.input_tokens
    if prompt is None:
        prompt = (timings.prompt_n or 0) + (cached or 0)
    made = usage.completion_tokens if usage.completion_tokens is not None else usage.output_tokens
    return Measurement(
        input_tokens=timings.prompt_n if timings.prompt_n is not None else max(prompt - (cached or 0), 0),
        output_tokens=timings.predicted_n if timings.predicted_n is not None else made or 0,
        prompt_tokens=prompt,
        cache_tokens=cached,
        time_to_first_token=(timings.prompt_ms or 0.0) / 1000,
        tokens_per_second=timings.predicted_per_second or 0.0,
    )

"""llama.cpp's own server in a process of its own: `python -m lemonade.engines.llamacpp.host -m FILE --port N …`.

It takes llama-server's command line (as far as `flags.py` goes), serves until its standard input ends or a signal ends
it, and says why on the last line when it cannot start. It imports next to nothing: this is part of every cold start.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from typing import Any

from lemonade.engines.llamacpp.arguments import parse
from lemonade.engines.llamacpp.words import Member, Setting
from lemonade.errors import InvalidArgument


def main(words: list[str]) -> int:
    try:
        settings = parse(words, managed=True)
    except InvalidArgument as error:
        print(f"error: {error.message}", file=sys.stderr, flush=True)
        return 2

    import xllamacpp

    params = xllamacpp.CommonParams()
    # Pages of other origins that a browser shows must not talk to the engine behind the daemon's back.
    params.cors_origins = "localhost"
    params.ui = False
    # What is no picture or sound would be a video for ffmpeg, which opens files and addresses that it finds inside.
    params.video_ffmpeg_bin_dir = os.devnull
    # llama-server's own default, set where it reads its command line.
    params.default_template_kwargs = {"preserve_reasoning": "true"}
    try:
        apply(params, settings)
        server = xllamacpp.Server(params)
    except (AttributeError, TypeError, ValueError) as error:
        print(f"error: this version of the engine does not take an argument: {error}", file=sys.stderr, flush=True)
        return 2
    except RuntimeError as error:
        # llama.cpp's log has a thread of its own: its reasons come first, and not into the middle of this line.
        time.sleep(0.1)
        print(f"\nerror: llama.cpp cannot serve {params.model.path}: {error}", file=sys.stderr, flush=True)
        return 1
    print(f"serving on {server.listening_address}", file=sys.stderr, flush=True)
    # The daemon holds the other end and writes nothing: the end of the input is the end of the daemon.
    while os.read(0, 4096):
        pass
    # The operating system frees everything at once; taking a model apart politely can take seconds.
    os._exit(0)


def apply(params: Any, settings: Iterable[Setting]) -> None:
    """Makes the changes in a tree of `xllamacpp.CommonParams`.

    Raises:
        AttributeError, TypeError, ValueError: this version of the engine has no such parameter or value.
    """
    added: dict[str, list[Any]] = {}
    for attribute, value, how in settings:
        if how == "add":
            added.setdefault(attribute, []).append(value)
            continue
        *path, name = attribute.split(".")
        owner = params
        for part in path:
            owner = getattr(owner, part)
        old = getattr(owner, name)
        if how == "merge":
            setattr(owner, name, {**old, **value})
        elif how == "bit":
            setattr(owner, name, old | int(_plain(value)))
        else:
            setattr(owner, name, _made(attribute, value, old))
    for attribute, values in added.items():
        *path, name = attribute.split(".")
        owner = params
        for part in path:
            owner = getattr(owner, part)
        items = [_item(attribute, value) for value in values]
        setattr(owner, name, set(items) if isinstance(getattr(owner, name), set) else items)


def _plain(value: Any) -> Any:
    if isinstance(value, Member):
        import xllamacpp

        return getattr(getattr(xllamacpp, value.enum), value.name)
    return value


def _made(attribute: str, value: Any, old: Any) -> Any:
    import xllamacpp

    if attribute == "tensor_split":
        return [*value, *old[len(value) :]]
    if attribute == "sampling.grammar":
        kind, source = value
        grammar = xllamacpp.CommonGrammar()
        is_schema = kind.name.endswith("OUTPUT_FORMAT")
        grammar.type = _plain(kind)
        grammar.grammar = xllamacpp.json_schema_to_grammar(source) if is_schema else source
        return grammar
    return _plain(value)


def _item(attribute: str, value: Any) -> Any:
    import xllamacpp

    if attribute == "lora_adapters":
        return xllamacpp.CommonAdapterLoraInfo(*value)
    return _plain(value)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

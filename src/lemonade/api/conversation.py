"""A chat asked of one model of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lemonade.inference.chat import ChatRequest, check_reply, must_call, shape
from lemonade.inference.choices import Untouched, forward_choices
from lemonade.inference.forced_call import ForcedCall
from lemonade.inference.media import examine, fetches_pictures, put_in
from lemonade.inference.relay import EngineRequest, forward

if TYPE_CHECKING:
    from lemonade.api.services import Services
    from lemonade.inference.relay import Sink
    from lemonade.model import Model


async def converse(services: Services, model: Model, name: str, body: ChatRequest, raw: bytes, sink: Sink) -> None:
    """Gives the model's answer to `sink`.

    Args:
        name: the model in the answer.
        raw: the bytes of `body`.

    Raises:
        LemonadeError
    """
    media = await examine(body.messages, model, size=len(raw), allow_remote=fetches_pictures(services.settings))
    raw = await put_in(raw, media)
    requests = [
        EngineRequest(
            path="/v1/chat/completions",
            body=one,
            asked=name,
            alias=model.name,
            stream=body.stream is True,
            options=body.load_options,
            check=check_reply,
        )
        for one in shape(body, raw, lambda: _template(services, model))
    ]
    names = must_call(body)
    if len(requests) == 1 and not names:
        await forward(services.residency, model, requests[0], sink, services.metrics)
        return
    editor = ForcedCall(names) if names else Untouched()
    await forward_choices(services.residency, model, requests, sink, services.metrics, editor)


def _template(services: Services, model: Model) -> str | None:
    header = services.catalog.header(model)
    return header.chat_template if header else None

"""An engine's error answer in the words of the daemon."""

from __future__ import annotations

from typing import Any

import msgspec

from lemonade.errors import ContextLengthExceeded, ContextShared, EngineError, EngineReplied, RequestError

_CONTEXT_OVERFLOW = (
    "exceeds the available context size",
    "context length exceeded",
    "larger than the max context size",
    "too large to process",
)
#: What all requests are told that llama.cpp answers at once when there is no room left in the context that they share.
#: A request that is alone never is: its answer ends with the context.
_SHARED_FULL = "Context size has been exceeded"
#: llama.cpp answers 500 to these, though nothing is wrong with it: the request asks for what the model cannot do.
_CLIENTS_FAULT = (
    "image input is not supported",
    "audio input is not supported",
    "video input is not supported",
    "Failed to parse messages",
    "Failed to parse tool call arguments",
    "Failed to parse tools",
)
#: After it stands what the template says; before it, its source.
_REFUSED_BY_TEMPLATE = "Jinja Exception: "


def engine_failure(status: int, body: bytes, engine: str) -> RequestError | EngineError:
    """An engine's error answer as a failure of ours: its status, message, type and code, and its whole answer in
    `details`, so that nothing that the engine said is lost."""
    try:
        answer: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        answer = body.decode(errors="replace").strip()
    error = answer.get("error", answer) if isinstance(answer, dict) else answer
    if isinstance(error, str) and isinstance(answer, dict) and isinstance(answer.get("message"), str):
        # sd-server says what failed beside a word that says that something did.
        error = answer["message"]
    fields: dict[str, Any] = error if isinstance(error, dict) else {"message": error}
    message = fields.get("message")
    if not isinstance(message, str) or not message:
        message = f"{engine} answered {status} without a reason."
    code = fields.get("code")
    if isinstance(code, int) and 400 <= code <= 599:
        status = code
    if (at := message.find(_REFUSED_BY_TEMPLATE)) >= 0:
        reason = message[at + len(_REFUSED_BY_TEMPLATE) :].strip()
        message = f"The model's chat template refuses this conversation: {reason}"
    kind, param = fields.get("type"), fields.get("param")
    if status == 500 and any(phrase in message for phrase in _CLIENTS_FAULT):
        status, kind = 400, "invalid_request_error"
    details = {"status_code": status, "details": {"backend": engine, "response": answer}}
    if any(phrase in message for phrase in _CONTEXT_OVERFLOW):
        return ContextLengthExceeded(message, details=details)
    if _SHARED_FULL in message:
        return ContextShared(
            "The requests that this model answers at once have outgrown the context that they share. Try again; if it "
            "happens often, load the model with a larger 'ctx_size' or a smaller '--parallel'.",
            details=details,
        )
    return EngineReplied(
        message,
        status=status,
        type=kind if isinstance(kind, str) else None,
        code=code if isinstance(code, str) else None,
        param=param if isinstance(param, str) else None,
        details=details,
    )

"""A provider's failures in the words of the daemon: its status and its text, without what is secret in it."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from lemonade.errors import EngineReplied
from lemonade.system.logs import secrets

#: Most bytes of a provider's error that are read, and most characters of it that are told.
MAX_ERROR = 64 * 1024
MAX_TEXT = 2000
#: Longest wait that is passed on, in seconds.
MAX_WAIT = 24 * 3600.0
#: What an error that is not whole says; the text is told as it stands in JSON.
_REASON = re.compile(rb'"(?:message|msg)"\s*:\s*"((?:[^"\\]|\\.)+)"')


class ProviderReplied(EngineReplied):
    """A provider answered with an error."""


class ProviderBusy(ProviderReplied):
    """… one that may be gone the next time."""

    retry = True


def provider_failure(provider: str, status: int, body: bytes, headers: Mapping[str, str]) -> ProviderReplied:
    """A provider's error answer as a failure of ours.

    Args:
        status: as it came; one of a success, or one that there is not, becomes 502 unless the error names another.
    """
    try:
        answer: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        # Some repeat the whole request in their refusal, of which only the beginning was read.
        found = _REASON.search(body)
        answer = {"error": found and found[1].decode(errors="replace")}
    told = answer if isinstance(answer, dict) else {}
    error = told.get("error") or told.get("detail") or told.get("message")
    fields: dict[str, Any] = error if isinstance(error, dict) else {"message": error}
    text = fields.get("message")
    if isinstance(text, list | dict):
        text = msgspec.json.encode(text).decode()
    lasting = False
    if not isinstance(text, str) or not text:
        kind = headers.get("content-type", "")[:80]
        reason = "no reason" if status >= 400 else "something that is no answer of this API"
        text = f"it answered {status} and {reason} ({kind or 'of no type'}). Is its base_url right?"
        # Asked again it answers, and may charge for, the same.
        lasting = status < 400
    code = fields.get("code")
    if not 400 <= status <= 599:
        status = code if isinstance(code, int) and 400 <= code <= 599 else 502
    busy = not lasting and (status in (408, 409, 425, 429) or status >= 500)
    kind_of = ProviderBusy if busy else ProviderReplied
    failure = kind_of(
        f"cloud ({provider}) request failed: {secrets.hide(text)[:MAX_TEXT]}",
        status=status,
        type=_word(fields.get("type")),
        code=_word(code),
        param=_word(fields.get("param")),
        details={"status_code": status, "details": {"provider": provider}},
    )
    failure.retry_after = _wait(headers)
    return failure


def redirect(provider: str, headers: Mapping[str, str]) -> ProviderReplied:
    """A redirect, which would take the key and the prompt somewhere else."""
    try:
        # Before it is taken apart: a host is told in small letters, in which a key would not be known.
        target = urlsplit(secrets.hide(headers.get("location", ""))).hostname or ""
    except ValueError:
        target = ""
    to = f" to {target[:200]}" if target.isascii() and target.isprintable() and target else ""
    return ProviderReplied(
        f"cloud ({provider}) request failed: it answers with a redirect{to}, which is not followed, because the key "
        "would go along. Correct its base_url.",
        status=502,
        details={"status_code": 502, "details": {"provider": provider}},
    )


def _word(value: Any) -> str | None:
    return secrets.hide(value)[:100] if isinstance(value, str) and value else None


def _wait(headers: Mapping[str, str]) -> float | None:
    """Seconds after which a provider wants to be asked again, if it says."""
    from email.utils import parsedate_to_datetime

    try:
        if "retry-after-ms" in headers:
            wait = float(headers["retry-after-ms"]) / 1000
        elif "retry-after" in headers:
            text = headers["retry-after"]
            wait = float(text) if text[:1].isdigit() else parsedate_to_datetime(text).timestamp() - time.time()
        else:
            return None
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(wait, 0.0), MAX_WAIT) if wait == wait else None

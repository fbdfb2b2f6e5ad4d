from __future__ import annotations

import inspect
import re

import pytest

from lemonade import errors
from lemonade.errors import EngineReplied, LemonadeError, MissingArgument, ModelNotFound

CLASSES = [each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, LemonadeError)]

#: The tree in the module's docstring: name, status, and the code or type where it is told.
ROWS = re.findall(r"^[\s│├└─]+([A-Z]\w+)(?: +(\d{3}))?(?: +([a-z_]+)$)?", errors.__doc__ or "", re.MULTILINE)


def test_the_docstring_shows_the_whole_tree() -> None:
    assert {name for name, _, _ in ROWS} | {"LemonadeError"} == {each.__name__ for each in CLASSES}


@pytest.mark.parametrize(("name", "status", "word"), [row for row in ROWS if row[1] and row[0] != "Busy"])
def test_the_docstring_tells_the_truth(name: str, status: str, word: str) -> None:
    each = getattr(errors, name)
    assert each.status == int(status)
    if word:
        assert word in (each.type, each.code)


@pytest.mark.parametrize("each", CLASSES)
def test_only_passing_faults_are_retried(each: type[LemonadeError]) -> None:
    # Clients repeat 409, 429 and 5xx on their own; a permanent fault must say that it is one.
    passing = ("Busy", "ContextShared", "EngineLost", "RegistryUnreachable")
    assert each.retry is (each.__name__ in passing)


def test_body_has_message_and_type_and_what_else_is_known() -> None:
    assert MissingArgument("messages").body() == {
        "message": "Missing required argument 'messages'.",
        "type": "invalid_request_error",
        "code": "missing_argument",
        "param": "messages",
    }
    assert LemonadeError("broken").body() == {"message": "broken", "type": "internal_error"}


def test_model_errors_repeat_the_requested_name() -> None:
    body = ModelNotFound("no", requested="x", details={"near": ["y"]}).body()
    assert body["requested_model"] == "x"
    assert body["param"] == "model"
    assert body["type"] == body["code"] == "model_not_found"
    assert body["near"] == ["y"]


@pytest.mark.parametrize(
    ("status", "shown", "kind"), [(422, 422, "invalid_request_error"), (200, 500, "backend_error")]
)
def test_an_engines_reply_never_becomes_a_success(status: int, shown: int, kind: str) -> None:
    error = EngineReplied("said no", status=status)
    assert (error.status, error.type) == (shown, kind)

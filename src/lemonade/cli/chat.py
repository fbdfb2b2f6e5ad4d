"""A conversation in the terminal."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from lemonade.cli.answer import Answer, show
from lemonade.cli.terminal import fail, note
from lemonade.errors import LemonadeError

if TYPE_CHECKING:
    from lemonade.client import Client

HELP = """\
/system TEXT   what the model is told first; without TEXT: show it
/clear         forget the conversation
/model NAME    go on with another model
/list          models that are here
/stats         speed of the last answer
/exit          leave (also Ctrl-D)
Ctrl-C stops an answer. A line that ends with \\ goes on in the next one."""


class Chat:
    """A model and what was said so far.

    Args:
        limits: further fields of each request (`max_tokens`, `temperature`).
    """

    def __init__(self, client: Client, model: str, *, system: str, limits: dict[str, Any]) -> None:
        self._client = client
        self._model = model
        self._system = system
        self._limits = limits
        self._messages: list[dict[str, str]] = []
        self._timings: dict[str, Any] = {}

    def talk(self) -> None:
        """Reads lines and answers them until /exit or the end of input."""
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 - gives input() a history and editing keys
        sys.stdin.reconfigure(errors="replace")  # type: ignore[union-attr]
        note(f"Talking to {self._model}. /help lists the commands, Ctrl-D leaves.")
        while True:
            try:
                line = _read()
            except KeyboardInterrupt:
                note("")
                continue
            except EOFError:
                note("")
                return
            if line.strip() in ("/exit", "/quit", "/bye"):
                return
            try:
                if line.startswith("/"):
                    self._command(line.strip())
                elif line.strip():
                    self._answer(line)
            except LemonadeError as error:
                fail(error.message)

    def _answer(self, line: str) -> None:
        self._messages.append({"role": "user", "content": line})
        system = [{"role": "system", "content": self._system}] if self._system else []
        answer = Answer(self._client, {"model": self._model, "messages": system + self._messages, **self._limits})
        try:
            show(answer, self._model)
        except KeyboardInterrupt:
            note("(stopped)")
        finally:
            self._timings = answer.timings
            # A stopped answer was said as far as it went; a question without any answer was not heard.
            if answer.text:
                self._messages.append({"role": "assistant", "content": answer.text})
            else:
                self._messages.pop()

    def _command(self, line: str) -> None:
        command, _, rest = line.partition(" ")
        rest = rest.strip()
        if command == "/help":
            note(HELP)
        elif command == "/clear":
            self._messages.clear()
            note("The conversation is forgotten.")
        elif command == "/system":
            self._system = rest or self._system
            note(f"System prompt: {self._system or '(none)'}")
        elif command == "/model":
            self._switch(rest)
        elif command == "/list":
            for row in self._client.get("/v1/models")["data"]:
                note(row["id"])
        elif command == "/stats":
            self._stats()
        else:
            note(f"There is no command {command}. /help lists them.")

    def _switch(self, name: str) -> None:
        from lemonade.client import path_of

        if name:
            self._client.get(path_of(name))
            self._model = name
        note(f"Model: {self._model}")

    def _stats(self) -> None:
        read, written = self._timings.get("prompt_per_second"), self._timings.get("predicted_per_second")
        if not read or not written:
            note("There are no figures yet.")
            return
        note(
            f"Prompt: {self._timings.get('prompt_n', 0)} tokens, {read:.1f} per second. "
            f"Answer: {self._timings.get('predicted_n', 0)} tokens, {written:.1f} per second."
        )


def _read() -> str:
    line = _ask(">>> ")
    while line.endswith("\\"):
        line = line[:-1] + "\n" + _ask("... ")
    return line


def _ask(prompt: str) -> str:
    if sys.stdout.isatty():
        return input(prompt)
    # Answers go into a file or a pipe, prompts do not.
    print(prompt, end="", file=sys.stderr, flush=True)
    return input()

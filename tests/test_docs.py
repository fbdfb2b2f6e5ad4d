"""What people read is true: generated pages, commands, links, settings, endpoints, and examples that run."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from typer.main import get_command

from lemonade import __version__
from lemonade.api.table import ENDPOINTS, SOCKETS
from lemonade.cli.config import _value
from lemonade.cli.main import app, arrange
from lemonade.engines.fasterwhisper.engine import PACKAGES as FETCHED
from lemonade.engines.fasterwhisper.flags import FLAGS as FASTER_WHISPER
from lemonade.engines.llamacpp.arguments import RESERVED
from lemonade.engines.llamacpp.flags import TAKEN
from lemonade.settings import Settings
from tests.daemon import Daemon, free_port

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")])
#: The pages that speak to users.
FOR_USERS = [ROOT / "README.md", ROOT / "docs" / "guide.md"]

ADDRESS = "http://localhost:13305"
#: Models that the examples name; tests put one of the fake engine's in their place.
NAMED = re.compile(r"SmolLM2-135M-Instruct-GGUF|Qwen3-0\.6B-GGUF")

#: Seconds after which an example hangs.
PATIENCE = 60


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def commands(block: str) -> Iterator[list[str]]:
    """The words of every `lemonade` command of a block, pipes and redirections left out."""
    for line in block.replace("\\\n", " ").splitlines():
        for part in split(words_of(line)):
            if part[:1] == ["lemonade"]:
                yield part[1:]


def words_of(line: str) -> list[str]:
    """The shell's words and operators; comments are left out."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|<>;&")
    lexer.whitespace_split = True
    return list(lexer)


def split(words: list[str]) -> Iterator[list[str]]:
    """The simple commands of a line. What follows a redirection is a part of its own, as no command begins with it."""
    part: list[str] = []
    for word in words:
        if word in ("|", "<", ">", ";", "&&"):
            yield part
            part = []
        else:
            part.append(word)
    yield part


def inline(page: Path) -> list[str]:
    """What stands between backquotes, outside of blocks."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", text)]


def parse(words: list[str]) -> None:
    """Has the real parser read a command line; nothing is carried out. Raises what the program would complain of."""
    command: Any = get_command(app)
    silence(command)
    command.main(args=arrange(words), prog_name="lemonade", standalone_mode=False)


def silence(command: Any) -> None:
    command.callback = lambda **_: None
    for child in getattr(command, "commands", {}).values():
        silence(child)


def flags(command: Any) -> set[str]:
    own = {flag for option in command.params for flag in (*option.opts, *option.secondary_opts)}
    return own.union(*(flags(child) for child in getattr(command, "commands", {}).values()))


def slug(heading: str) -> str:
    """The anchor of a heading, as code hosts make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def script(name: str) -> ModuleType:
    """A program of scripts/ as a module."""
    loader = importlib.machinery.SourceFileLoader(f"script_{name}", str(ROOT / "scripts" / name))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return module


def test_generated_pages_are_up_to_date() -> None:
    assert script("docs").stale() == [], "run scripts/docs"


def test_settings_that_wait_for_later_are_read_nowhere() -> None:
    waiting = script("docs").LATER
    source = "\n".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    read = set(re.findall(r"settings\[\"([\w.]+)\"\]", source)) - {"telemetry.enabled"}  # /health only repeats it
    assert {key for key in read if key in waiting or key.partition(".")[0] in waiting} == set(), (
        "has an effect now: take it out of LATER in scripts/docs"
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_blocks_parse(page: Path) -> None:
    for block in blocks(page, "bash"):
        for words in commands(block):
            parse(words)


def test_a_command_that_is_none_does_not_parse() -> None:
    for wrong in (["lisst"], ["list", "--downloadedd"], ["config", "sett", "a=b"], ["serve", "--port", "many"]):
        with pytest.raises(Exception, match=r"No such|valid integer"):
            parse(wrong)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_the_text_exist(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for code in inline(page):
        words = words_of(code)
        if words[:1] != ["lemonade"] or (len(words) > 1 and words[1].isupper()):
            continue
        try:
            parse(words[1:])
        except typer.BadParameter as error:
            # `lemonade pin` may be spoken of without a model.
            assert type(error).__name__ == "MissingParameter", code


@pytest.mark.parametrize("page", FOR_USERS, ids=lambda page: page.name)
def test_flags_in_the_text_exist(page: Path) -> None:
    known = flags(get_command(app)) | RESERVED | {name for flag in (*TAKEN, *FASTER_WHISPER) for name in flag.names}
    known |= {"--model", "--ctx-size", "--port", "--help"}
    said = {word.partition("=")[0] for code in inline(page) for word in code.split() if word.startswith("--")}
    assert said - known == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_settings_that_are_set_can_be_set(page: Path) -> None:
    lines = [words for block in blocks(page, "bash") for words in commands(block)]
    lines += [words_of(code)[1:] for code in inline(page) if code.startswith("lemonade config set")]
    for words in lines:
        for pair in words[2:] if words[:2] == ["config", "set"] else []:
            key, _, text = pair.partition("=")
            if not key.isupper():
                Settings([]).change({key: _value(text)}, persist=False)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_variables_exist(page: Path) -> None:
    source = "\n".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    said = set(re.findall(r"\b(?:LEMONADE|HF)_[A-Z_]*[A-Z]", page.read_text("utf-8")))
    assert {name for name in said if name not in source} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", path.read_text("utf-8"), re.MULTILINE)
            assert anchor in {slug(heading) for heading in headings}, target


def test_the_seams_name_what_is_there() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    seams = re.findall(r"^### ([\w ]+)\n+```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(seams) >= 5
    missing = []
    for title, block in seams:
        floors = [ROOT / "src" / "lemonade" / name for name in title.split() if name != "and"]
        files = [file for floor in floors for file in sources(floor)]
        source = "\n".join(file.read_text("utf-8") for file in files)
        said = re.findall(r"^# (?:\w+/)?(\w+\.py)", block, re.MULTILINE)
        missing += [name for name in said if name not in {file.name for file in files}]
        for kind, name in re.findall(r"(?:^|[;@ ])(class|def) (\w+)", block, re.MULTILINE):
            if not re.search(rf"\b{kind} {name}\b", source):
                missing.append(f"{kind} {name} of {title}")
    assert missing == []


def sources(floor: Path) -> list[Path]:
    """The modules of a floor, which may be a single one."""
    return sorted(floor.rglob("*.py")) if floor.is_dir() else [floor.with_suffix(".py")]


def test_every_endpoint_that_the_readme_names_is_there() -> None:
    there = {f"{one.method} {path}" for one in ENDPOINTS for path in one.paths}
    there |= {f"WS {path}" for one in SOCKETS for path in one.paths}
    named = set(re.findall(r"`((?:GET|POST|WS) [^`]+)`", (ROOT / "README.md").read_text("utf-8")))
    assert len(named) > 30
    assert named - there == set()


def test_every_dependency_is_explained() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)
    wanted = [*project["project"]["dependencies"], *project["dependency-groups"]["test"]]
    wanted += [one for one in project["dependency-groups"]["dev"] if isinstance(one, str)]
    names = {re.split(r"[^\w.-]", one, maxsplit=1)[0] for one in (*wanted, *FETCHED)}
    page = (ROOT / "docs" / "dependencies.md").read_text("utf-8")
    assert set(re.findall(r"^\| ([\w-]+) \|", page, re.MULTILINE)) - {"Package", "---"} == names


def test_the_changelog_knows_this_version() -> None:
    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")


# Examples, carried out.


def test_python_examples_run(daemon: Daemon) -> None:
    examples = [block for page in FOR_USERS for block in blocks(page, "python") if "OpenAI(" in block]
    assert len(examples) >= 2
    for example in examples:
        assert ADDRESS in example
        code = NAMED.sub("a", example.replace(ADDRESS, daemon.url))
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip()


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_curl_examples_run(daemon: Daemon) -> None:
    examples = [block for block in blocks(ROOT / "README.md", "bash") if block.startswith("curl")]
    assert examples
    for example in examples:
        assert ADDRESS in example
        code = NAMED.sub("b", example.replace(ADDRESS, daemon.url))
        done = subprocess.run(["sh", "-c", code], capture_output=True, text=True, timeout=PATIENCE)
        assert json.loads(done.stdout)["choices"][0]["message"]["content"], done.stdout


def test_the_daemon_can_be_brought_along(tmp_path: Path) -> None:
    (example,) = (block for block in blocks(ROOT / "docs" / "guide.md", "python") if "lemonade.app" in block)
    assert "18080" in example
    env = {key: value for key, value in os.environ.items() if not key.startswith(("LEMONADE_", "HF_"))}
    done = subprocess.run(
        [sys.executable, "-c", example.replace("18080", str(free_port()))],
        cwd=tmp_path,
        env=env | {"HF_HOME": str(tmp_path / "hf")},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert "'status': 'ok'" in done.stdout
    assert (tmp_path / "lemonade-data").is_dir()

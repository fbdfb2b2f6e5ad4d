"""The floors of docs/architecture.md: imports run downward only, and modules stay small enough to be read at once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "src" / "lemonade"

#: From the ground up.
FLOORS = (
    "system",
    "hub",
    "catalog",
    "engines",
    "residency",
    "inference",
    "api",
    "websocket_protocol",
    "listener",
    "app",
    "cli",
)
GROUND = frozenset({"errors", "model", "settings", "settings_table", "paths", "address", "__init__"})

MAX_LINES = 400

MODULES = sorted(path for path in ROOT.rglob("*.py"))


def floor_of(parts: tuple[str, ...]) -> str:
    """`ground`, `client`, or the floor of a dotted name without `lemonade`."""
    first = parts[0] if parts else "__init__"
    is_module = (ROOT / first).is_dir() or (ROOT / f"{first}.py").is_file()
    return "ground" if first in GROUND or not is_module else first  # `__version__` is the package's own


def imports(tree: ast.AST, module: tuple[str, ...], *, types: bool = True) -> set[tuple[str, ...]]:
    """What a module of the package imports from the package, also inside functions, as parts without `lemonade`.

    Args:
        types: also what is imported for type checkers only, or by the program that a module is when it is run.
    """
    found: set[tuple[str, ...]] = set()
    for node in _walk(tree, types):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join(("lemonade", *module[: len(module) - node.level], *filter(None, [node.module])))
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        found.update(tuple(name.split(".")[1:]) for name in names if name.split(".")[0] == "lemonade")
    return found


def _walk(node: ast.AST, types: bool) -> Iterator[ast.AST]:
    if not types and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    if not types and isinstance(node, ast.FunctionDef) and node.name == "main":
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, types)


def parts_of(path: Path) -> tuple[str, ...]:
    return path.relative_to(ROOT).with_suffix("").parts


def allowed(importer: str, imported: str) -> bool:
    if imported == "ground" or importer == imported:
        return True
    if importer in ("ground", "client"):
        return False
    if imported == "client":
        return importer == "cli"
    return FLOORS.index(imported) < FLOORS.index(importer)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: ".".join(parts_of(path)))
def test_module_imports_only_floors_below_and_is_small(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    module = parts_of(path)
    floor = floor_of(module)
    assert floor in ("ground", "client", *FLOORS), f"{path} is on no floor"
    upward = [".".join(name) for name in imports(ast.parse(text), module) if not allowed(floor, floor_of(name))]
    assert not upward, f"{'.'.join(module)} on the floor {floor} imports {upward}"
    lines = text.count("\n")
    assert lines <= MAX_LINES, f"{path.name} has {lines} lines: it has two nouns"


def test_no_circles() -> None:
    known = {parts_of(path): path for path in MODULES}
    graph: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for module, path in known.items():
        wanted = imports(ast.parse(path.read_text(encoding="utf-8")), module, types=False)
        # `from lemonade.a import b` names either the module a.b or something in a.
        graph[module] = {name if name in known else name[:-1] for name in wanted} & known.keys() - {module}
    done: set[tuple[str, ...]] = set()

    def visit(module: tuple[str, ...], way: tuple[tuple[str, ...], ...]) -> None:
        assert module not in way, "a circle: " + " -> ".join(".".join(each) for each in (*way, module))
        if module not in done:
            for each in sorted(graph[module]):
                visit(each, (*way, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def test_the_rules_themselves() -> None:
    assert allowed("hub", "system")
    assert allowed("cli", "client")
    assert not allowed("system", "hub")
    assert not allowed("client", "catalog")
    assert not allowed("app", "client")
    tree = ast.parse(
        "def f():\n    from lemonade.api import x\n    from ..hub import store\n    import lemonade.errors\n"
    )
    assert imports(tree, ("catalog", "labels")) == {("api", "x"), ("hub", "store"), ("errors",)}

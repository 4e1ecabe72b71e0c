"""Defects that are planted in the engine: a replay that finds none of them guards nothing."""

from __future__ import annotations

import ast
import importlib
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import noetl.engine.folds
from tests.replay.logs import digest, kinds, load, names
from tests.replay.replay import replay

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import CodeType, FunctionType

    from tests.replay.logs import Log

FOLDS = Path(noetl.engine.folds.__file__).parent
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Arm:
    """One `case` of one `match` of the folds."""

    module: str
    function: str
    """Its place in the module, with dots."""
    number: int

    def __str__(self) -> str:
        return f"{self.module.rpartition('.')[2]}.{self.function}:{self.number}"


def arms() -> list[Arm]:
    """Every `case` of every `match` of the folds."""
    found = []
    for file in sorted(FOLDS.glob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for name, function in _functions(tree):
            module = f"{noetl.engine.folds.__name__}.{file.stem}"
            found += [Arm(module, name, number) for number, _ in enumerate(_cases(function))]
    return found


@contextmanager
def without(arm: Arm) -> Iterator[None]:
    """The engine as if somebody had deleted this arm."""
    module = importlib.import_module(arm.module)
    function: Any = module
    for part in arm.function.split("."):
        function = vars(function)[part]
    before = function.__code__
    function.__code__ = _mutated(Path(str(module.__file__)), function, arm)
    try:
        yield
    finally:
        function.__code__ = before


def _mutated(file: Path, function: FunctionType, arm: Arm) -> CodeType:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    gone = _cases(dict(_functions(tree))[arm.function])[arm.number]
    for node in ast.walk(tree):
        if isinstance(node, ast.Match) and gone in node.cases:
            node.cases.remove(gone)
            if not node.cases:  # a `match` needs one
                node.cases.append(ast.parse("match 1:\n  case 2: pass").body[0].cases[0])  # type: ignore[attr-defined]  # it is a match
    code = compile(ast.fix_missing_locations(tree), str(file), "exec")
    return _code(code, function.__qualname__)


def _code(code: CodeType, qualname: str) -> CodeType:
    """The code of a function in the code of its module."""
    for one in code.co_consts:
        if hasattr(one, "co_qualname"):
            if one.co_qualname == qualname:
                return one  # type: ignore[no-any-return]  # constants have no type of their own
            if qualname.startswith(f"{one.co_qualname}."):
                return _code(one, qualname)
    raise LookupError(qualname)


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """The functions of a module and the methods of its classes, by their places."""
    for node in tree.body:
        if isinstance(node, FUNCTIONS):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.{one.name}", one) for one in node.body
                        if isinstance(one, FUNCTIONS))  # fmt: skip


def _cases(function: ast.AST) -> list[ast.match_case]:
    return [case for node in ast.walk(function) if isinstance(node, ast.Match)
            for case in node.cases]  # fmt: skip


@cache
def by_length() -> tuple[Log, ...]:
    """Every log, the shortest first."""
    logs = (load(name) for name in names())
    return tuple(sorted(logs, key=lambda log: (len(log.rows), log.name)))


@cache
def holding(kind: str) -> list[Log]:
    """The logs that hold an event of a type, the shortest first."""
    return [log for log in by_length() if kind in kinds([log])]


def is_seen(logs: Iterable[Log]) -> bool:
    """Whether some log is not what it was."""
    return any(map(_differs, logs))


def _differs(log: Log) -> bool:
    try:
        state, _ = replay(log)
    except Exception:  # noqa: BLE001 - whatever a defect does, it is seen
        return True
    return digest(state) != log.final

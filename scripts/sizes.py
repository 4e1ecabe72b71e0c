"""Prints how large the code is and how many exceptions to the rules it makes."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from noetl.settings import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "noetl"
SHOWN = 10

COUNTED = {
    "broad excepts": re.compile(r"^\s*except(\s*:|\s+\(?.*\b(Base)?Exception\b)"),
    "noqa": re.compile(r"#\s*noqa\b"),
    "type: ignore": re.compile(r"#\s*type:\s*ignore\b"),
    "no cover": re.compile(r"#\s*pragma:\s*no cover\b"),
}


@dataclass(frozen=True, order=True, slots=True)
class Size:
    """Something that has a length in lines."""

    lines: int
    name: str


def functions(path: Path, tree: ast.Module) -> Iterator[Size]:
    """Every function of a module with its length, decorators not counted."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            yield Size(lines, f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")


def table(title: str, sizes: list[Size]) -> None:
    """Print the longest of them."""
    print(f"\n{title}")
    for size in sorted(sizes, reverse=True)[:SHOWN]:
        print(f"  {size.lines:5}  {size.name}")


def main() -> None:
    """Read every module of the product and print the tables."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py"))}
    modules = [Size(text.count("\n"), str(path.relative_to(ROOT))) for path, text in texts.items()]
    longest = [size for path, text in texts.items() for size in functions(path, ast.parse(text))]
    print(f"{len(modules)} modules, {sum(size.lines for size in modules)} lines")
    table("longest modules", modules)
    table("longest functions", longest)
    print("\ncounts")
    for name, pattern in COUNTED.items():
        lines = (line for text in texts.values() for line in text.splitlines())
        print(f"  {sum(bool(pattern.search(line)) for line in lines):5}  {name}")
    print(f"  {len(SETTINGS):5}  settings")


if __name__ == "__main__":
    main()

"""Values as text: JSON, block YAML, aligned columns, and control characters made visible."""

from __future__ import annotations

import re
import textwrap
from difflib import get_close_matches
from io import StringIO
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
# JSON escapes the lower ones itself; these it leaves, and YAML refuses some of them.
_UNESCAPED: Final = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")
# What YAML 1.1 and 1.2 both read as the same text without quotes.
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*(?: [A-Za-z0-9_./-]+)*")
_WORDS: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
_NARROWEST: Final = 20
MS: Final = 1000
"""Milliseconds in a second."""
MINUTE_S: Final = 60


def visible(text: str) -> str:
    """Text of a document or a file name on one line, without power over the terminal."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def json_text(value: object) -> str:
    """Indented JSON, ended by a newline."""
    return f"{_json(value, indent=2)}\n"


def json_line(value: object) -> str:
    """JSON on one line, ended by a newline."""
    return f"{_json(value)}\n"


def yaml_text(value: object) -> str:
    """Block YAML that reads back as the same JSON value."""
    return "\n".join(_yaml(value)) + "\n"


def _yaml(value: object) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _under(f"{_scalar(str(key))}:", item)
    elif isinstance(value, list | tuple) and value:
        for item in value:
            first, *rest = _yaml(item)
            yield f"- {first}"
            yield from (f"  {line}" for line in rest)
    else:
        yield _scalar(value)


def _under(key: str, value: object) -> Iterator[str]:
    if isinstance(value, dict | list | tuple) and value:
        yield key
        yield from (f"  {line}" for line in _yaml(value))
    else:
        yield f"{key} {_scalar(value)}"


def _scalar(value: object) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return _json(value)


def _json(value: object, indent: int | None = None) -> str:
    import json

    separators = (",", ": ") if indent else (",", ":")
    text = json.dumps(value, indent=indent, ensure_ascii=False, separators=separators)
    return _UNESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def columns(rows: Sequence[Sequence[str]], width: int) -> str:
    """Rows in columns; only the last one is wrapped, the others are names to copy."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    for row in rows[:1]:
        for _ in row[:-1]:
            table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    names = max((sum(len(cell) + 2 for cell in row[:-1]) for row in rows), default=0)
    console = Console(file=StringIO(), width=max(width, names + _NARROWEST), color_system=None)
    with console.capture() as shown:
        console.print(table)
    return "".join(f"{line.rstrip()}\n" for line in shown.get().splitlines()) if rows else ""


def wrapped(text: str, width: int, *, first: str = "", rest: str = "") -> list[str]:
    """Lines of a paragraph after a head; at least one, even of an empty text."""
    size = max(width, len(rest) + _NARROWEST)
    return textwrap.wrap(
        text,
        size,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [first.rstrip()]


def counted(number: int, noun: str) -> str:
    """`1 file`, `2 files`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def nearest(word: str, known: tuple[str, ...]) -> str:
    """A `did you mean` hint, or the known words when nothing is near."""
    close = get_close_matches(word, known, n=1)
    if close:
        return f"did you mean `{close[0]}`?"
    return "known here: " + ", ".join(f"`{item}`" for item in known)


def duration(ms: float) -> str:
    """`12 ms`, `0.4 s`, `3 min 20 s`."""
    seconds = ms / MS
    if ms < MS / 10:
        return f"{ms:.0f} ms"
    if seconds < MINUTE_S:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), MINUTE_S)
    if minutes < MINUTE_S:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, MINUTE_S)
    return f"{hours} h {minutes} min"

"""Placeholders of SQL text: `%s`, `%(name)s` and `$1` become what the server numbers.

As with psycopg, `%%` is a percent sign when there are params. Only code is looked at: what stands
in quotes or comments is no placeholder.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from noetl.tools.base import ToolError
from noetl.tools.statements import pieces

_PLACE: Final = re.compile(r"%(?:%|\((?P<name>[^)]*)\)[sbt]|(?P<next>[sbt])(?!\w))|\$(?P<nth>\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A statement as the server reads it, with the values of its placeholders."""

    text: str
    values: tuple[Any, ...] = ()
    shifts: tuple[tuple[int, int], ...] = ()
    """Places in the text, and how far each is from where the author wrote it."""

    def written(self, position: int) -> int:
        """The author's position of a position in the text; both count from 1."""
        at = bisect_right(self.shifts, (position - 1, len(self.text) + position)) - 1
        return position if at < 0 else position + self.shifts[at][1]


def bind(statement: str, params: Any) -> Bound:  # noqa: ANN401 - a list or a map, else nothing
    """The statement with numbered placeholders; without params it stays as it is."""
    if not params:
        return Bound(text=statement)
    made = _Binding(params)
    for piece in pieces(statement):
        if piece.kind == "code":
            made.code(piece.text)
        else:
            made.quoted(piece.text)
    return made.bound()


class _Binding:
    def __init__(self, params: Any) -> None:  # noqa: ANN401 - a list or a map
        self._params = params
        self._by_name = isinstance(params, Mapping)
        self._numbers: dict[Any, int] = {}
        self._is_numbered = False
        self._used = 0
        self._made: list[str] = []
        self._length = 0
        self._read = 0
        self._shifts: list[tuple[int, int]] = []

    def quoted(self, text: str) -> None:
        self._put(text, text.replace("%%", "%"))

    def code(self, text: str) -> None:
        at = 0
        for found in _PLACE.finditer(text):
            self._put(text[at : found.start()])
            self._put(found.group(), self._place(found))
            at = found.end()
        self._put(text[at:])

    def _put(self, read: str, made: str | None = None) -> None:
        made = read if made is None else made
        self._made.append(made)
        self._read += len(read)
        self._length += len(made)
        if len(made) != len(read):
            self._shifts.append((self._length, self._read - self._length))

    def _place(self, found: re.Match[str]) -> str:
        if found.group() == "%%":
            return "%"
        if (nth := found["nth"]) is not None:
            self._is_numbered = True
            if self._by_name:
                raise _wrong(f"${nth} needs a list")
            return found.group()
        if (name := found["name"]) is not None:
            if not self._by_name:
                raise _wrong(f"%({name})s needs a map")
            if name not in self._params:
                raise _wrong(f"there is no `{name}`")
            return f"${self._numbers.setdefault(name, len(self._numbers) + 1)}"
        if self._by_name:
            raise _wrong("%s needs a list; a map has %(name)s")
        self._used += 1
        return f"${self._used}"

    def bound(self) -> Bound:
        if self._by_name:
            values = tuple(self._params[name] for name in self._numbers)
        else:
            values = tuple(self._params)
            if self._used and self._is_numbered:
                raise _wrong("either %s or $1, not both")
            if not self._is_numbered and self._used != len(values):
                raise _wrong(f"{len(values)} values for {self._used} placeholders")
        return Bound(text="".join(self._made), values=values, shifts=tuple(self._shifts))


def _wrong(message: str) -> ToolError:
    return ToolError("config", "invalid_config", f"/params: {message}")

"""Puts the changes of a rewritten document back into the author's own text.

A YAML writer keeps the data but not the hand: folds, blanks, escapes and comments. So rewritten
lines replace only the lines that they change, and every comment stays or follows its line.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from noetl.dsl.yaml import Map, Seq, load, unpack

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_BLOCK = re.compile(r"(?:&\S+\s+)?[|>]([0-9+-]*)")
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*")
_STEP = re.compile(r" *- step:")
_LEAST_LIKE = 0.6


class Row(NamedTuple):
    """A line with code on it: as written, without its comment, and what stands above it."""

    line: int
    raw: str
    code: str
    note: str = ""
    above: tuple[str, ...] = ()
    goes_on: bool = False

    @property
    def indent(self) -> str:
        """The blanks before the code."""
        return " " * (len(self.code) - len(self.code.lstrip(" ")))


@dataclass(frozen=True, slots=True)
class Source:
    """A text as rows of code; comments and blank lines belong to the row below them."""

    rows: tuple[Row, ...]
    below: tuple[str, ...]

    @property
    def bare(self) -> str:
        """The code alone."""
        return "".join(row.code + "\n" for row in self.rows)

    @property
    def comments(self) -> list[str]:
        """Every comment, in order."""
        texts = [text for row in self.rows for text in (*row.above, row.note)]
        return [text.strip() for text in (*texts, *self.below) if text.strip()]


def read_source(text: str) -> Source:
    """Tell code from comments; a `#` inside a scalar is code."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    lines = text.removesuffix("\n").split("\n")
    masked, going_on = _mask(text, lines)
    rows: list[Row] = []
    above: list[str] = []
    for index, line in enumerate(lines):
        found = _COMMENT.search(masked[index])
        goes_on = index in going_on
        shown = masked[index][: found.start() if found else None]
        code = "".join(
            " " if hidden == "\t" else char for char, hidden in zip(line, shown, strict=False)
        )
        code = code if goes_on and not found else code.rstrip()
        if not code and not goes_on:
            above.append(line)
            continue
        note = line[found.start() :] if found else ""
        rows.append(Row(index + 1, line, code, note, tuple(above), goes_on))
        above = []
    return Source(tuple(rows), tuple(above))


def _mask(text: str, lines: list[str]) -> tuple[list[str], set[int]]:
    """The lines with every scalar blotted out, and the lines that go on with one."""
    masked = list(lines)
    going_on: set[int] = set()
    for start, end in _scalars(load(text).root):
        header = _BLOCK.match(lines[start.line], start.column)
        first, last = start.line, end.line
        if header is not None:
            first, last = start.line + 1, end.line - (end.column == 0)
            while "+" not in header[1] and last > start.line and not lines[last].strip():
                last -= 1
        going_on |= set(range(start.line + 1, last + 1))
        for number in range(first, last + 1):
            line = masked[number]
            whole = header is not None
            left = start.column if number == start.line else 0
            right = end.column if number == end.line and not whole else len(line)
            masked[number] = line[:left] + "x" * (right - left) + line[right:]
    return masked, going_on


def _scalars(node: object) -> Iterator[tuple[Any, Any]]:
    """Where every key and every scalar value of a tree stands."""
    if isinstance(node, Map):
        entries = [(node.at[key], value) for key, value in node.items()]
        yield from ((unpack(marks[0]), unpack(marks[1])) for marks, _ in entries)
    else:
        entries = list(zip(node.at, node, strict=True)) if isinstance(node, Seq) else []
    for marks, value in entries:
        if isinstance(value, (Map, Seq)):
            yield from _scalars(value)
        else:
            yield unpack(marks[2]), unpack(marks[3])


# ---------------------------------------------------------------------------- three texts


class _Hunk(NamedTuple):
    """Lines `low..high` of one text give way to lines `start..stop` of another."""

    low: int
    high: int
    start: int
    stop: int

    @property
    def growth(self) -> int:
        """How many lines more the other text has."""
        return self.stop - self.start - (self.high - self.low)


def _hunks(base: Sequence[str], other: Sequence[str]) -> list[_Hunk]:
    """What differs, step by step: to compare whole texts takes the square of their lengths."""
    fixed = [(-1, -1), *_anchors(base, other), (len(base), len(other))]
    return [
        _Hunk(low + code[1], low + code[2], start + code[3], start + code[4])
        for (low, start), (high, stop) in pairwise((a + 1, b + 1) for a, b in fixed)
        for code in SequenceMatcher(
            None, base[low : high - 1], other[start : stop - 1]
        ).get_opcodes()
        if code[0] != "equal"
    ]


def _anchors(base: Sequence[str], other: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Where the steps begin in both texts, in order."""
    heads = [line for line in base if _STEP.match(line)]
    least = min((line.index("-") for line in heads), default=0)
    once = {line for line, count in Counter(heads).items() if count == 1}
    once &= {line for line, count in Counter(other).items() if count == 1}
    there = {line: index for index, line in enumerate(other) if line in once}
    last = -1
    for index, line in enumerate(base):
        if line in once and line.index("-") == least and there[line] > last:
            last = there[line]
            yield index, last


def _regions(base: Sequence[str], own: Sequence[str], edited: Sequence[str]) -> list[_Hunk]:
    """Where the edited text is taken: its changes, widened over what the writer reflowed."""
    reflowed, changed = _hunks(base, own), _hunks(base, edited)
    spans: list[tuple[int, int]] = []
    marked = sorted([*((hunk, True) for hunk in changed), *((hunk, False) for hunk in reflowed)])
    needed: list[bool] = []
    for hunk, is_change in marked:
        low, high = spans[-1] if spans else (-1, -1)
        touches = hunk.low == high and (hunk.low == hunk.high or low == high)
        if hunk.low < high or touches:
            spans[-1] = (low, max(high, hunk.high))
            needed[-1] |= is_change
        else:
            spans.append((hunk.low, hunk.high))
            needed.append(is_change)
    lefts, rights = _across(spans, reflowed), _across(spans, changed)
    return [
        _Hunk(*left, *right)
        for left, right, is_change in zip(lefts, rights, needed, strict=True)
        if is_change
    ]


def _across(spans: list[tuple[int, int]], hunks: list[_Hunk]) -> Iterator[tuple[int, int]]:
    """Where stretches of the base, which hold hunks whole or not at all, stand in the other."""
    lows, highs = [hunk.low for hunk in hunks], [hunk.high for hunk in hunks]
    grown = [0, *accumulate(hunk.growth for hunk in hunks)]
    for low, high in spans:
        before, until = bisect_left(lows, low), bisect_right(highs, high)
        yield low + grown[before], high + grown[until]


def weave(source: Source, base: str, edited: str) -> str:
    """The author's text with the lines of `edited` where that differs from `base`."""
    new = read_source(edited)
    own = [row.code for row in source.rows]
    lines = [row.code for row in new.rows]
    merged = _Weaver(source, new, _regions(base.splitlines(), own, lines)).text()
    if load(merged).root != load(edited).root:
        return _Weaver(source, new, [_Hunk(0, len(own), 0, len(lines))]).text()
    return merged


@dataclass
class _Weaver:
    """Writes one text of two and gives every comment a home."""

    source: Source
    new: Source
    regions: list[_Hunk]
    above: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    notes: dict[int, str] = field(default_factory=dict)
    says: dict[tuple[str, str], set[int]] = field(default_factory=lambda: defaultdict(set))
    homeless: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    steps: list[str] = field(default_factory=list)

    def text(self) -> str:
        """The whole text."""
        pairs = {region: self._pairs(region) for region in self.regions}
        taken = {new for found in pairs.values() for new in found.values()}
        free = [
            index
            for region in self.regions
            for index in range(region.start, region.stop)
            if index not in taken and not self.new.rows[index].goes_on
        ]
        self.steps = _steps(self.source.rows)
        steps = _steps(self.new.rows)
        for line in free:
            for step in {"", steps[line]}:
                self.says[step, _meat(self.new.rows[line])].add(line)
        for region, found in pairs.items():
            here = free[bisect_left(free, region.start) : bisect_left(free, region.stop)]
            for index in range(region.low, region.high):
                if self.source.rows[index].above or self.source.rows[index].note:
                    self._settle(index, region, found, here)
        out: list[str] = []
        place = 0
        for region in self.regions:
            out += self._own(place, region.low)
            out += self._new(region.start, region.stop)
            place = region.high
        out += self._own(place, len(self.source.rows))
        out += self.homeless[len(self.source.rows)]
        return "".join(line + "\n" for line in (*out, *self.source.below))

    def _pairs(self, region: _Hunk) -> dict[int, int]:
        """Rows that stand in both texts of a region, at whatever depth."""
        old = [row.code.strip() for row in self.source.rows[region.low : region.high]]
        new = [row.code.strip() for row in self.new.rows[region.start : region.stop]]
        blocks = SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
        return {
            region.low + block.a + i: region.start + block.b + i
            for block in blocks
            for i in range(block.size)
            if not self.new.rows[region.start + block.b + i].goes_on
        }

    def _settle(self, index: int, region: _Hunk, pairs: dict[int, int], free: list[int]) -> None:
        row = self.source.rows[index]
        home = top = pairs.get(index)
        if home is None:
            here = self._between(index, region, pairs, free)
            home = self._likest(index, here)
            top = next((i for i in here if _key(self.new.rows[i]) == _key(row)), home)
        if home is not None and top is not None:
            self.above[top] += row.above
            if row.note and home not in self.notes:
                self.notes[home] = row.note
                return
            texts = [row.note] if row.note else []
        else:
            texts = [*row.above, *filter(None, [row.note])]
            home = self._parent(index, region, pairs)
            after = (pairs[i] for i in range(index, region.high) if i in pairs)
            home = next(after, None) if home is None else home
            home = next(iter(free), None) if home is None else home
        if home is not None:
            self.above[home] += texts
        else:
            first = self.source.rows[region.low]
            self.homeless[self._next(region.high)] += [_indented(text, first) for text in texts]

    def _between(
        self, index: int, region: _Hunk, pairs: dict[int, int], free: list[int]
    ) -> list[int]:
        """The new lines that came in between the neighbours of a row."""
        low = max((pairs[i] for i in range(region.low, index) if i in pairs), default=region.start)
        high = min((pairs[i] for i in range(index, region.high) if i in pairs), default=region.stop)
        return [line for line in free if low <= line < high]

    def _parent(self, index: int, region: _Hunk, pairs: dict[int, int]) -> int | None:
        """The new line of the map that held a row, if that map has moved."""
        rows = self.source.rows
        depth = len(rows[index].indent)
        for i in range(index - 1, region.low - 1, -1):
            if len(rows[i].indent) < depth and not rows[i].goes_on:
                depth = len(rows[i].indent)
                home = pairs.get(i, self._moved(i))
                if home is not None:
                    return home
        return None

    def _moved(self, index: int) -> int | None:
        """The one new line, of the same step or of all, that says what a row says."""
        meat = _meat(self.source.rows[index])
        found = (self.says[step, meat] for step in (self.steps[index], ""))
        return next((min(lines) for lines in found if len(lines) == 1), None)

    def _likest(self, index: int, here: list[int]) -> int | None:
        """The new line that says the same here or, alone, elsewhere; else one that is like it."""
        rows, row = self.new.rows, self.source.rows[index]
        near = [line for line in here if line in self.says["", _meat(row)]]
        home = near[0] if near else self._moved(index)
        if home is not None:
            return home
        likest = max(here, key=lambda line: _likeness(row, rows[line]), default=None)
        if likest is None or _likeness(row, rows[likest]) < _LEAST_LIKE:
            return None
        return likest

    def _next(self, index: int) -> int:
        """The next row of the author above which a comment may stand."""
        rows = self.source.rows
        while index < len(rows) and rows[index].goes_on:
            index += 1
        return index

    def _own(self, low: int, high: int) -> Iterator[str]:
        for index in range(low, high):
            row = self.source.rows[index]
            yield from self.homeless[index]
            yield from row.above
            yield row.raw

    def _new(self, start: int, stop: int) -> Iterator[str]:
        for index in range(start, stop):
            row = self.new.rows[index]
            yield from (_indented(text, row) for text in self.above[index])
            yield f"{row.code}  {self.notes[index]}" if index in self.notes else row.code


def _steps(rows: Sequence[Row]) -> list[str]:
    """The first line of the step to which each row belongs."""
    heads = [row for row in rows if _STEP.match(row.code) and not row.goes_on]
    least = min((len(row.indent) for row in heads), default=0)
    found = [""]
    for row in rows:
        is_head = _STEP.match(row.code) and not row.goes_on and len(row.indent) == least
        found.append(row.code.strip() if is_head else found[-1])
    return found[1:]


def _indented(text: str, row: Row) -> str:
    return row.indent + text.strip() if text.strip() else ""


def _meat(row: Row) -> str:
    """What a line says, wherever it stands and whatever its key is called."""
    text = row.code.strip().removeprefix("- ")
    return text.partition(": ")[2].strip() or text


def _likeness(one: Row, two: Row) -> float:
    """How alike two lines are; the same key is like enough."""
    left, right = one.code.strip(), two.code.strip()
    least = _LEAST_LIKE if _key(one) == _key(two) else 0
    return max(SequenceMatcher(None, left, right).ratio(), least)


def _key(row: Row) -> str:
    return row.code.strip().removeprefix("- ").partition(":")[0]

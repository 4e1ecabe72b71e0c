"""Printed bytes become lines of a bounded length."""

from __future__ import annotations

from noetl.tools.interpreter.lines import CUT_MARK, LINE_BYTES, LineSplitter


def test_lines_survive_any_cutting_of_the_chunks():
    splitter = LineSplitter()
    chunks = [b"a", b"b\nc", b"", b"\r\nlast"]
    made = [line for chunk in chunks for line in splitter.feed(chunk)]
    assert [*made, *splitter.end()] == ["ab", "c", "last"]


def test_a_long_line_is_cut_once_and_marked():
    splitter = LineSplitter()
    made = [line for _ in range(5) for line in splitter.feed(b"x" * LINE_BYTES)]
    made += splitter.feed(b"end\nnext\n")
    assert made == ["x" * LINE_BYTES + CUT_MARK, "next"]
    assert list(splitter.end()) == []

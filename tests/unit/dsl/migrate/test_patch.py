# ruff: noqa: E501 - one case per line
"""Changed lines go back into the author's text; the rest and every comment stay."""

import pytest

from noetl.dsl.migrate.patch import read_source, weave
from noetl.dsl.yaml import load

TEXT = """\
# top

a: 1   # one
b: "x # no comment"   # two
c: |   # header
  text # no comment

  # no comment either

# before d
d: >+
  keep

e: plain
  goes # on
f: 'quoted
  # no comment'   # three
g: [1,   # four
  2]

# bottom
"""


def test_comments_are_told_from_code():
    source = read_source(TEXT)
    assert source.comments == [
        "# top", "# one", "# two", "# header", "# before d", "# on", "# three", "# four", "# bottom",
    ]  # fmt: skip
    assert source.bare == (
        'a: 1\nb: "x # no comment"\nc: |\n  text # no comment\n\n  # no comment either\n'
        "d: >+\n  keep\n\ne: plain\n  goes\nf: 'quoted\n  # no comment'\ng: [1,\n  2]\n"
    )
    assert load(source.bare).root == load(TEXT).root


def test_windows_line_ends_marks_and_tabs_are_no_code():
    source = read_source("\ufeffa:\tb\t\r\n\r\nc: 'd\te'  # f\r\n")
    assert (source.bare, source.comments) == ("a: b\nc: 'd\te'\n", ["# f"])


WOVEN = {
    "nothing changed": ("a: {b: 1}\n", "a:\n  b: 1\n", "a:\n  b: 1\n", "a: {b: 1}\n"),
    "a value": ("a: 1  # one\nb:  2  # two\n", "a: 1\nb: 2\n", "a: 3\nb: 2\n", "a: 3  # one\nb:  2  # two\n"),
    "a reflowed line": ("a:  1\nb:  2\n", "a: 1\nb: 2\n", "a: 1\nb: 3\n", "a: 1\nb: 3\n"),
    "a line far from a reflowed one": ("a:  1\nb: 2\nc: 3\n", "a: 1\nb: 2\nc: 3\n", "a: 1\nb: 2\nc: 4\n", "a:  1\nb: 2\nc: 4\n"),
    "a key": ("# k\nold: 1  # n\n", "old: 1\n", "new: 1\n", "# k\nnew: 1  # n\n"),
    "a moved line": (
        "a: 1\n# w\nwhen: x > 1  # n\nb: 2\n", "a: 1\nwhen: x > 1\nb: 2\n",
        "a: 1\nb: 2\nspec:\n  admit: x > 1\n", "a: 1\nb: 2\nspec:\n  # w\n  admit: x > 1  # n\n",
    ),
    "a deeper block": (
        "a:\n  # i\n  - x: 1  # n\n  - y\n", "a:\n  - x: 1\n  - y\n",
        "a:\n  arcs:\n    - x: 1\n    - y\n", "a:\n  arcs:\n    # i\n    - x: 1  # n\n    - y\n",
    ),
    "a dropped line": ("a: 1\n# k\nb: 2  # n\nc: 3\n", "a: 1\nb: 2\nc: 3\n", "a: 1\nc: 3\n", "a: 1\n# k\n# n\nc: 3\n"),
    "a dropped last line": ("a: 1\nb: 2  # n\n", "a: 1\nb: 2\n", "a: 1\n", "a: 1\n# n\n"),
    "a dropped line before a text": (
        "a: 1\nb: 2  # n\nc: |\n  x\nd: |\n  x\n", "a: 1\nb: 2\nc: |\n  x\nd: |\n  x\n",
        "a: 1\nd: |\n  x\n", "a: 1\n# n\nd: |\n  x\n",
    ),
    "two notes for one line": (
        "a: {b: 1,  # one\n  a: 2}  # two\n", "a: {b: 1, a: 2}\n",
        "a: {b: 1, a: 3}\n", "# two\na: {b: 1, a: 3}  # one\n",
    ),
    "a line that is only like it": ("a: {next: end}  # n\n", "a: {next: end}\n", "a: {next: {step: end}}\n", "a: {next: {step: end}}  # n\n"),
    "a line of the same key": ("next: [a, b, c]  # n\n", "next: [a, b, c]\n", "next:\n  - step: a\n", "next:  # n\n  - step: a\n"),
    "nothing like it": (
        "a: 1\n\n# k\nb: {zzzzzzzz: 1}  # n\nc: 2\n", "a: 1\nb: {zzzzzzzz: 1}\nc: 2\n",
        "a: 1\nq:\n  - 7\nc: 2\n", "a: 1\n\n# k\n# n\nq:\n  - 7\nc: 2\n",
    ),
    "the next line of both": (
        "a:\n  q: {zzzzzz: 1}  # n\n  x: 1\n", "a:\n  q: {zzzzzz: 1}\n  x: 1\n",
        "a:\n  b:\n    x: 1\n", "a:\n  b:\n    # n\n    x: 1\n",
    ),
    "a head of a text": (
        "a: |  # n\n  x\nc: 1\n", "a: |\n  x\nc: 1\n", "zzz: >\n  x\nc: 1\n", "# n\nzzz: >\n  x\nc: 1\n",
    ),
    "a dropped head of a text": ("- b\n- |  # n\n  x\n", "- b\n- |\n  x\n", "- b\n  x\n", "- b\n  x\n# n\n"),
    "a dropped line of a map that ends": (
        "- a: 1\n  b: 2  # n\n- c: 3\n", "- a: 1\n  b: 2\n- c: 3\n", "- a: 1\n- c: 3\n", "- a: 1\n  # n\n- c: 3\n",
    ),
    "a comment is never put into a text": (
        "a: x  # n\nb: 1\n", "a: x\nb: 1\n", "a: |\n  a: x\nb: 1\n", "a: |  # n\n  a: x\nb: 1\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("own", "base", "edited", "woven"), WOVEN.values(), ids=WOVEN)
def test_changed_lines_replace_only_what_they_change(own, base, edited, woven):
    source = read_source(own)
    found = weave(source, base, edited)
    assert found == woven
    assert load(found).root == load(edited).root
    assert sorted(read_source(found).comments) == sorted(source.comments)


def test_a_misfit_takes_the_edited_text_whole():
    source = read_source("a: 1  # one\nb: 2\n")
    assert weave(source, "a: 1\nb: 2\n", "a: 1\nb: 2\n") == "a: 1  # one\nb: 2\n"
    assert weave(source, "c: 3\n", "c: 3\n") == "# one\nc: 3\n"

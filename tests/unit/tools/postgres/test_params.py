"""Placeholders become numbers, and positions stay those of the author."""

from __future__ import annotations

import pytest

from noetl.tools.base import ToolError
from noetl.tools.postgres.params import bind


@pytest.mark.parametrize(
    ("text", "params", "made", "values"),
    [
        ("a = %s and b = %s", [1, 2], "a = $1 and b = $2", (1, 2)),
        ("%(b)s %(a)s %(b)s", {"a": 1, "b": 2, "c": 3}, "$1 $2 $1", (2, 1)),
        ("$2 $1 $2", [1, 2], "$2 $1 $2", (1, 2)),
        ("a %% 2 = %s", [0], "a % 2 = $1", (0,)),
        ("a % 2 = %s", [0], "a % 2 = $1", (0,)),
        ("'%s' \"%s\" -- %s\n%s", [1], "'%s' \"%s\" -- %s\n$1", (1,)),
        ("like 'a%%' = %s", [1], "like 'a%' = $1", (1,)),
        ("a %some %s", [1], "a %some $1", (1,)),
        ("%s %s", None, "%s %s", ()),
        ("%%", [], "%%", ()),
    ],
)
def test_placeholders_are_numbered(text, params, made, values):
    bound = bind(text, params)

    assert (bound.text, bound.values) == (made, values)


def test_positions_are_those_of_the_author():
    text = "select %(name)s, '%%', %(name)s, wrong"
    bound = bind(text, {"name": 1})

    for word in ("select", ", '", "wrong"):
        assert bound.written(bound.text.index(word) + 1) == text.index(word) + 1


@pytest.mark.parametrize(
    ("text", "params"),
    [("%s", [1, 2]), ("%s %s", [1]), ("%(a)s", {"b": 1}), ("%(a)s", [1]), ("%s", {"a": 1}),
     ("$1", {"a": 1}), ("%s $1", [1])],
)  # fmt: skip
def test_what_does_not_fit_is_refused(text, params):
    with pytest.raises(ToolError) as raised:
        bind(text, params)

    assert raised.value.message.startswith("/params: ")

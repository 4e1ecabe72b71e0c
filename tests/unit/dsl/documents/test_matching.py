from __future__ import annotations

import pytest

from noetl.dsl.documents.matching import matches


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        (1, 1),
        (1, 1.0),
        ("a", "a"),
        (None, None),
        (True, True),
        ([], []),
        ({}, {"a": 1}),
        ({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}, "d": 3}),
        ([{"a": 1}], [{"a": 1, "b": 2}]),
        ([1, 2], (1, 2)),
        ({"$any": True}, None),
        ({"a": {"$any": True}}, {"a": [1]}),
        ({"$type": "string"}, "x"),
        ({"$type": "integer"}, 1),
        ({"$type": "number"}, 1.5),
        ({"$type": "boolean"}, False),
        ({"$type": "null"}, None),
        ({"$type": "array"}, [1]),
        ({"$type": "object"}, {"a": 1}),
        ({"$regex": "b+"}, "a\nbb"),
        ({"$regex": "^a$"}, "a"),
        ({"$gt": 1, "$lte": 2}, 2),
        ({"$gte": "a", "$lt": "b"}, "a"),
        ({"$ref": 1}, {"$ref": 1}),
    ],
)
def test_values_that_match(expected, actual):
    assert matches(expected, actual) == []


@pytest.mark.parametrize(
    ("expected", "actual", "fault"),
    [
        ("1", 1, '(root): expected "1", found 1'),
        (1, "1", '(root): expected 1, found "1"'),
        (1, True, "(root): expected 1, found true"),
        (0, False, "(root): expected 0, found false"),
        (None, 0, "(root): expected null, found 0"),
        ({"a": 1}, [1], "(root): expected a map, found [1]"),
        ([1], {"a": 1}, '(root): expected a list, found {"a": 1}'),
        ([1], [1, 2], "(root): expected 1 items, found 2"),
        ({"a": {"b": 1}}, {"a": {}}, "/a/b: missing; expected 1"),
        ({"a/b~c": 1}, {"a/b~c": 2}, "/a~1b~0c: expected 1, found 2"),
        ({"a": [1, 2]}, {"a": [1, 3]}, "/a/1: expected 2, found 3"),
        ({"a": {"$type": "integer"}}, {"a": True},
         "/a: expected a value of type integer, found true"),
        ({"$type": "text"}, "a",
         "(root): `$type` is one of null, boolean, integer, number, string, array, object"),
        ({"a": {"$regex": "^b"}}, {"a": "ab"}, '/a: expected text that matches ^b, found "ab"'),
        ({"$regex": "1"}, 1, "(root): expected text that matches 1, found 1"),
        ({"$gt": 1}, 1, "(root): expected $gt 1, found 1"),
        ({"$gt": 1}, "2", '(root): expected $gt 1, found "2"'),
        ({"$lt": 1}, True, "(root): expected $lt 1, found true"),
        ({"$lt": [1]}, [0], "(root): expected $lt [1], found [0]"),
        ("a", object, f'(root): expected "a", found "{object}"'),
        ("x", "y" * 200, f'(root): expected "x", found "{"y" * 119}…'),
    ],
)  # fmt: skip
def test_a_mismatch_names_its_place(expected, actual, fault):
    assert matches(expected, actual) == [fault]


def test_every_mismatch_is_reported():
    assert matches({"a": 1, "b": [1, {"c": 2}]}, {"b": [2, {"c": 3}]}) == [
        "/a: missing; expected 1",
        "/b/0: expected 1, found 2",
        "/b/1/c: expected 2, found 3",
    ]


def test_exact_compares_whole_maps_at_every_depth():
    assert matches({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}, "d/e": 3}, exact=True) == [
        "/a/c: not expected",
        "/d~1e: not expected",
    ]
    assert matches({"a": [{"b": 1}]}, {"a": [{"b": 1}]}, exact=True) == []


def test_a_pattern_that_is_wrong_is_a_mismatch_that_says_so():
    (fault,) = matches({"a": {"$regex": "("}}, {"a": "x"})
    assert fault.startswith("/a: the pattern is wrong")


def test_a_pattern_that_would_backtrack_takes_linear_time():
    assert matches({"$regex": "^(a+)+$"}, "a" * 50_000 + "b") != []

"""Every case of tests/corpus/templates gives its expected answer, and Jinja2's where it says so."""

import json

import pytest

from tests.unit.dsl.template.corpus import GROUPS, answer, jinja_answer, load

CASES = load()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_case_gives_its_expected_answer(case):
    # As JSON, so that `1`, `1.0` and `true` are three things.
    assert json.dumps(answer(case)) == json.dumps(case.expected)


@pytest.mark.parametrize("case", [case for case in CASES if case.is_same_in_jinja], ids=str)
def test_jinja_agrees_where_the_corpus_says_so(case):
    kind, value = jinja_answer(case)
    assert kind == case.expected[0]
    if kind == "value":
        assert json.dumps(value) == json.dumps(case.expected[1])


def test_every_difference_to_jinja_has_a_reason():
    assert [str(case) for case in CASES if not case.is_same_in_jinja and not case.why] == []


def test_the_corpus_is_large_and_covers_every_group():
    assert len(CASES) >= 320
    assert GROUPS == [
        "arithmetic",
        "defaults",
        "filters",
        "injection",
        "limits",
        "methods",
        "quotes",
        "statements",
        "tests",
        "text",
        "unicode",
        "views",
    ]

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from noetl.cli.text import columns, counted, json_line, json_text, visible, yaml_text

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(VALUES)
def test_yaml_reads_back_as_the_same_value(value):
    assert yaml.safe_load(yaml_text(value)) == value


@given(VALUES)
def test_json_reads_back_as_the_same_value_and_a_line_is_one_line(value):
    assert json.loads(json_text(value)) == value
    assert json.loads(json_line(value)) == value
    assert json_line(value).splitlines() == [json_line(value).rstrip("\n")]


@given(st.text())
def test_visible_text_has_no_power_over_a_terminal(text):
    shown = visible(text)

    assert shown.isprintable() or not any(
        ord(char) < 32 or 127 <= ord(char) < 160 for char in shown
    )
    assert len(shown.splitlines()) <= 1


def test_plain_yaml_words_stay_plain_and_others_are_quoted():
    value = {
        "kind": "Playbook",
        "on": "yes",
        "n": "7",
        "empty": [],
        "text": "a: b",
        "list": [{"a": 1}],
    }

    assert yaml_text(value) == (
        'kind: Playbook\n"on": "yes"\n"n": "7"\nempty: []\ntext: "a: b"\nlist:\n  - a: 1\n'
    )


def test_columns_wrap_only_the_last_one():
    rows = [("a", "one two three four five six seven"), ("long", "x")]

    assert columns(rows, 26) == ("a     one two three four\n      five six seven\nlong  x\n")
    assert columns([], 80) == ""


def test_an_empty_last_cell_leaves_no_blank_at_the_end():
    assert columns([("a", ""), ("b", "x")], 80) == "a\nb  x\n"


@pytest.mark.parametrize(("number", "words"), [(0, "0 files"), (1, "1 file"), (2, "2 files")])
def test_things_are_counted_in_words(number, words):
    assert counted(number, "file") == words

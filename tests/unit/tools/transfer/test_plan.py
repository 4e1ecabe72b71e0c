"""Names, columns and marks of a transfer."""

from __future__ import annotations

import pytest

from noetl.tools.base import ToolError
from noetl.tools.transfer.files import format_of
from noetl.tools.transfer.plan import Plan, filled, listed, named, pairs_of, parts_of, quoted


def plan(**given):
    return Plan(**{
        "mode": "append", "key": (), "chunk_size": 10, "is_lenient": False, "columns": (),
        "mapping": {}, "is_made": False, "mark": "7/s/-/1", **given,
    })  # fmt: skip


def code_of(work, *args, **given):
    with pytest.raises(ToolError) as caught:
        work(*args, **given)
    return caught.value.code


@pytest.mark.parametrize(
    ("table", "parts"),
    [
        ("a", ("a",)),
        ("s.a", ("s", "a")),
        ('"a.b".c', ("a.b", "c")),
        ('"a""b"', ('a"b',)),
        ("SALES.PUBLIC.DAILY", ("SALES", "PUBLIC", "DAILY")),
        ("New One", ("New One",)),
    ],
)
def test_a_name_has_parts(table, parts):
    assert parts_of(table) == parts


@pytest.mark.parametrize("table", ["", ".", "a.", ".a", 'a"b', '"a', "a..b"])
def test_what_is_no_name_is_refused(table):
    assert code_of(parts_of, table) == "invalid_config"


def test_a_schema_is_for_a_name_without_one():
    assert parts_of("t", "s") == ("s", "t")
    assert parts_of("x.t", "s") == ("x", "t")


def pairs(fields, **given):
    return [(pair.column, pair.field) for pair in pairs_of(fields, plan(**given))]


def test_every_field_fills_the_column_of_its_name():
    assert pairs(["a", "b"]) == [("a", "a"), ("b", "b")]


def test_columns_choose_and_mapping_names_the_field():
    assert pairs(["a", "b"], columns=("b",)) == [("b", "b")]
    assert pairs(["a", "b"], mapping={"x": "b"}) == [("x", "b")]
    assert pairs(["a", "b"], columns=("x", "a"), mapping={"x": "b"}) == [("x", "b"), ("a", "a")]


def test_case_matters_only_when_two_names_differ_in_it():
    assert pairs(["ID"], columns=("id",)) == [("id", "ID")]
    assert code_of(pairs_of, ["ID", "Id"], plan(columns=("id",))) == "column_missing"


def test_what_cannot_be_paired_is_told():
    assert code_of(pairs_of, ["a", "a"], plan()) == "duplicate_column"
    assert code_of(pairs_of, ["a"], plan(columns=("b",))) == "column_missing"
    assert code_of(pairs_of, ["a"], plan(mode="upsert", key=("b",))) == "invalid_config"


def test_the_table_spells_its_columns_itself():
    assert named(["id", "B"], {"ID": 1, "B": 2}, "t") == {"id": "ID", "B": "B"}
    assert code_of(named, ["c"], {"ID": 1}, "t") == "column_missing"


def test_names_in_statements_are_quoted():
    assert quoted("s", 'a"b') == '"s"."a""b"'
    assert listed(["a", "b"], "new.") == 'new."a", new."b"'
    assert filled("from {table} where {key} = '{no}'", table='"{key}"', key="k", no="1") == (
        "from \"{key}\" where k = '1'"
    )


def test_a_mark_makes_a_name_of_an_object():
    assert plan().digest == plan().digest != plan(mark="7/s/-/2").digest
    assert plan(mark="../x").digest.isalnum()


@pytest.mark.parametrize(
    ("given", "name", "media", "form"),
    [
        ("csv", "x.parquet", "", "csv"),
        (None, "x.parquet", "text/csv", "parquet"),
        (None, "x.JSONL?a=b.csv", "", "ndjson"),
        (None, "x", "application/json; charset=utf-8", "json"),
        (None, "x", "", "parquet"),
    ],
)
def test_the_form_of_a_file(given, name, media, form):
    assert format_of(given, name, media, otherwise="parquet") == form


def test_an_unknown_form_is_refused():
    assert code_of(format_of, "odd", "x.csv") == "invalid_config"
    assert code_of(format_of, None, "x") == "invalid_config"

"""Which transfers there are, told when a playbook is registered."""

from __future__ import annotations

import pytest

from noetl.dsl.parse import parse

HEAD = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: move, path: demo/move}
workflow:
  - step: start
    tool:
      kind: transfer
"""
PG = "{kind: postgres, auth: db, query: select 1 as a}"
TABLE = "{kind: postgres, auth: db, table: t}"


def found(source, target, more=""):
    text = f"{HEAD}      source: {source}\n      target: {target}\n{more}"
    return [(item.code, item.message) for item in parse(text.encode()).errors]


@pytest.mark.parametrize("source", [
    PG,
    "{kind: duckdb, query: select 1}",
    "{kind: sqlite, path: a.db, query: select 1}",
    "{kind: http, url: 'https://x.example/'}",
    "{kind: s3, auth: o, uri: 's3://b/x.csv'}",
    "{kind: gcs, auth: o, uri: 'gcs://b/x.csv'}",
    "{kind: gcs, auth: o, uri: '{{ workload.uri }}'}",
    "{kind: snowflake, auth: sf, query: select 1}",
])  # fmt: skip
@pytest.mark.parametrize("target", [
    TABLE,
    "{kind: duckdb, database: a.db, table: t}",
    "{kind: sqlite, path: a.db, table: t}",
    "{kind: s3, auth: o, uri: 's3://b/x.csv'}",
    "{kind: gcs, auth: o, uri: 'gs://b/x.csv'}",
    "{kind: snowflake, auth: sf, table: t}",
])  # fmt: skip
def test_every_pair_of_stores_is_a_transfer(source, target):
    assert found(source, target) == []


@pytest.mark.parametrize(
    ("source", "target", "code", "message"),
    [
        ("{kind: postgres, auth: db}", TABLE, "DSL051", "a transfer from postgres needs `query`"),
        ("{kind: http}", TABLE, "DSL051", "a transfer from http needs `url`"),
        ("{kind: s3, auth: o}", TABLE, "DSL051", "a transfer from s3 needs `uri`"),
        ("{kind: sqlite, query: select 1}", TABLE, "DSL051", "a transfer from sqlite needs `path`"),
        ("{kind: s3, auth: o, uri: 'gs://b/x'}", TABLE, "DSL039",
         "an address of s3 starts with s3://"),
        (PG, "{kind: postgres, auth: db}", "DSL051", "a transfer to postgres needs `table`"),
        (PG, "{kind: gcs, auth: o}", "DSL051", "a transfer to gcs needs `uri`"),
        (PG, "{kind: duckdb, table: t}", "DSL051", "a transfer to duckdb needs `path`"),
    ],
)  # fmt: skip
def test_a_side_has_what_it_needs(source, target, code, message):
    assert found(source, target) == [(code, message)]


def test_objects_are_not_upserted():
    told = found(PG, "{kind: s3, auth: o, uri: 's3://b/x'}", "      mode: upsert\n      key: a\n")
    assert told == [("DSL039", "a transfer to s3 does not upsert: an object has no rows to change")]


def test_http_is_no_target():
    assert [code for code, _ in found(PG, "{kind: http, url: 'https://x.example/'}")] != []


def test_a_transfer_without_sides_is_told_once():
    text = HEAD.encode()
    codes = [item.code for item in parse(text).errors]
    assert codes == ["DSL051", "DSL051"]

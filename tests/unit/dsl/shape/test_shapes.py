"""Shapes: what each reads, refuses, publishes and says."""

import gc
from typing import Any

import pytest

from noetl.dsl.explain import model_of
from noetl.dsl.kinds import KINDS
from noetl.dsl.metadata import PathShape
from noetl.dsl.parse import parse
from noetl.dsl.playbook.policy import AdmitShape
from noetl.dsl.shape import (
    ByType,
    Choice,
    Data,
    Definitions,
    Fields,
    Flag,
    ListOf,
    MapOf,
    Model,
    Name,
    Number,
    Of,
    Shape,
    Text,
    choice,
    key,
    model,
    nearest,
    whole,
)
from noetl.dsl.shape.reader import WORKER, Reader
from noetl.dsl.shape.units import Condition, Duration, Scalar, SetMap, Size, seconds, size_bytes
from noetl.dsl.tasks import KINDS as TOOLS
from noetl.dsl.tasks.task import SelectShape
from noetl.dsl.yaml import Map, Place, load


def read(shape: Shape, text: str) -> tuple[Any, list[str]]:
    """What a shape makes of one YAML value, and the codes it reports."""
    document = load(f"k: {text}\n")
    assert isinstance(document.root, Map)
    reader = Reader(document)
    value = shape.read(document.root["k"], Place(document.root, "k", None), reader)
    return value, [item.code for item in reader.findings.sorted()]


@pytest.mark.parametrize(
    ("shape", "text", "value", "codes"),
    [
        (Text(), "abc", "abc", []),
        (Text(), "7", "", ["DSL038"]),
        (Text(), "~", "", ["DSL038"]),
        (Text(WORKER), "'{{ a }}'", "{{ a }}", []),
        (Text(pattern="^a+$"), "aaa", "aaa", []),
        (Text(pattern="^a+$"), "b", "b", ["DSL039"]),
        (Name(), "a-b_1", "a-b_1", []),
        (Name(), "1a", "1a", ["DSL015"]),
        (Name(), "[a]", "", ["DSL038"]),
        (Name(), "a" * 129, "a" * 129, ["DSL015"]),
        (Number(), "1.5", 1.5, []),
        (Number(0, 1), "2", 2, ["DSL039"]),
        (Number(above=0), "0", 0, ["DSL039"]),
        (Number(1), "0", 0, ["DSL039"]),
        (Number(), "'1'", 0, ["DSL038"]),
        (Number(), "true", 0, ["DSL038"]),
        (whole(1, 5), "3", 3, []),
        (whole(), "1.5", 0, ["DSL038"]),
        (whole(1, 5, role=WORKER), "'{{ n }}'", "{{ n }}", []),
        (whole(1, 5, role=WORKER), "'n'", 0, ["DSL038"]),
        (Flag(), "true", True, []),
        (Flag(), "yes", False, ["DSL038"]),
        (Flag(WORKER), "'{{ a }}'", "{{ a }}", []),
        (choice("a", "b"), "b", "b", []),
        (choice("a", "b"), "c", "a", ["DSL039"]),
        (choice("a", "b"), "1", "a", ["DSL038"]),
        (Choice(("a", "b"), role=WORKER), "'{{ x }}'", "{{ x }}", []),
        (ListOf(whole()), "[1, 2]", (1, 2), []),
        (ListOf(whole()), "1", (), ["DSL038"]),
        (ListOf(whole(), lone=True), "1", (1,), []),
        (ListOf(whole(), least=1), "[]", (), ["DSL039"]),
        (ListOf(whole(), most=1), "[1, 2]", (), ["DSL014"]),
        (MapOf(whole()), "{a: 1}", {"a": 1}, []),
        (MapOf(whole(), named=True), "{1a: 1}", {"1a": 1}, ["DSL015"]),
        (MapOf(whole()), "[1]", {}, ["DSL038"]),
        (ByType(text=Text(), map=Data(only="map")), "{a: 1}", {"a": 1}, []),
        (ByType(text=Text(), number=whole()), "x", "x", []),
        (ByType(text=Text(), number=whole()), "[1]", "", ["DSL038"]),
        (ByType(flag=Flag()), "~", False, ["DSL038"]),
        (Data(), "~", None, []),
        (Data(only="map"), "[1]", {}, ["DSL038"]),
        (Data(WORKER), "'{{ a'", "{{ a", ["DSL042"]),
        (Data(), "'{{ a'", "{{ a", []),
        (Duration(), "30s", 30.0, []),
        (Duration(), "7", 7, []),
        (Duration(), "soon", None, ["DSL039"]),
        (Duration(), "0", 0, ["DSL039"]),
        (Duration(zero=True), "0", 0, []),
        (Duration(least=10), "9", 9, ["DSL039"]),
        (Duration(), "{}", None, ["DSL038"]),
        (Duration(WORKER), "'{{ t }}'", "{{ t }}", []),
        (Size(), "10MB", 10_000_000, []),
        (Size(), "7", 7, []),
        (Size(), "0", 0, ["DSL039"]),
        (Size(), "big", 0, ["DSL039"]),
        (Size(), "true", 0, ["DSL038"]),
        (Size(most=10), "11", 11, ["DSL039"]),
        (Size(WORKER), "'{{ s }}'", "{{ s }}", []),
        (Condition(WORKER), "true", True, []),
        (Condition(WORKER), "a > 1", "a > 1", []),
        (Condition(WORKER), "1", True, ["DSL038"]),
        (Condition(WORKER), "'a >'", "a >", ["DSL042"]),
        (SetMap(WORKER), "{ctx.a: 1}", {"ctx.a": 1}, []),
        (SetMap(WORKER), "{job.a: 1}", {"job.a": 1}, ["DSL031"]),
        (SetMap(WORKER), "[1]", {}, ["DSL038"]),
        (Scalar(), "1.5", 1.5, []),
        (Scalar(), "[1]", "", ["DSL038"]),
        (PathShape(), "a/b", "a/b", []),
        (PathShape(), "a/../b", "a/../b", ["DSL016"]),
        (PathShape(), "1", "", ["DSL038"]),
        (SelectShape(), "[a]", {"a": "$.a"}, []),
        (SelectShape(), "7", {}, ["DSL038"]),
        (AdmitShape(), "{rules: [{else: {allow: true}, when: x}]}", None, ["DSL030"]),
    ],
)  # fmt: skip
def test_a_value_is_read_or_refused(
    shape: Shape, text: str, value: object, codes: list[str]
) -> None:
    found, reported = read(shape, text)
    assert reported == codes
    if value is not None or not codes:
        assert found == value


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("500ms", 0.5),
        ("30s", 30),
        ("1.5m", 90),
        ("2h", 7200),
        ("1d", 86400),
        ("5", None),
        ("m", None),
    ],
)
def test_a_duration_is_read_in_seconds(text: str, amount: float | None) -> None:
    assert seconds(text) == amount


@pytest.mark.parametrize(
    ("text", "amount"),
    [("7", 7), ("1KB", 1000), ("1kB", 1000), ("1Ki", 1024), ("1KiB", 1024), ("1.5Mi", 1572864),
     ("2GB", 2 * 10**9), ("1Ti", 2**40), ("1Xi", None), ("", None)],
)  # fmt: skip
def test_a_size_is_read_in_bytes(text: str, amount: int | None) -> None:
    assert size_bytes(text) == amount


@pytest.mark.parametrize(
    ("shape", "schema"),
    [
        (Text(WORKER, pattern="^a$"),
         {"anyOf": [{"type": "string", "pattern": "^a$"},
                    {"type": "string", "pattern": r"\{[{%#]"}]}),
        (Text(pattern="^a$"), {"type": "string", "pattern": "^a$"}),
        (whole(1, 5), {"type": "integer", "minimum": 1, "maximum": 5}),
        (Number(above=0), {"type": "number", "exclusiveMinimum": 0}),
        (Size(most=9), {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 9},
                                  {"type": "string",
                                   "pattern": r"^[0-9]+(\.[0-9]+)?\s*(|[kKMGT]B|[KMGT]iB?)$"}]}),
    ],
)  # fmt: skip
def test_a_shape_publishes_what_it_reads(shape: Shape, schema: dict[str, Any]) -> None:
    assert shape.schema(Definitions()) == schema


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (Number(0, 1), "number 0..1"),
        (Number(most=1), "number ..1"),
        (Number(1), "number >= 1"),
        (Number(above=0, role=WORKER), "number > 0 or template"),
        (whole(), "whole number"),
        (ByType(text=Duration(), number=Duration()), "seconds, or 500ms 30s 5m 2h 1d"),
    ],
)
def test_a_shape_says_what_it_takes(shape: Shape, words: str) -> None:
    assert shape.words() == words


def test_every_key_of_every_model_says_what_it_takes() -> None:
    waiting: list[type[Model]] = [kind.model for kind in KINDS.values()] + list(TOOLS.values())
    seen = set(waiting)
    while waiting:
        for item in Fields.of(waiting.pop()).keys.values():
            assert item.doc
            assert item.shape.words()
            inner = model_of(item.shape)
            if inner is not None and inner not in seen:
                seen.add(inner)
                waiting.append(inner)
    assert len(seen) > 60


def test_the_nearest_name_is_offered_or_all_of_them() -> None:
    assert nearest("worklow", ["workflow", "workload"]) == "did you mean `workflow`?"
    assert nearest("zzz", ["b", "a"]) == "known here: `a`, `b`"
    assert nearest("zzz", []) == ""


@model
class _Box(Model):
    """A model of the tests."""

    free: Any = key(Data(), "any value", default=1)
    text: str | None = key(Text(), "a text", default=None)
    must: Any = key(ByType(map=Data(only="map")), "a map")


def test_null_is_an_absent_key_unless_null_is_a_value() -> None:
    box, codes = read(Of(_Box), "{free: ~, text: ~, must: {}}")
    assert (box.free, box.text, codes) == (None, None, [])


def test_a_part_that_cannot_be_read_becomes_a_blank() -> None:
    box, codes = read(Of(_Box), "7")
    assert (box.must, codes) == (None, ["DSL038"])


def test_a_model_is_frozen() -> None:
    box, _ = read(Of(_Box), "{must: {}}")
    with pytest.raises(AttributeError):
        box.text = "x"


def test_the_collector_is_left_as_it_was() -> None:
    frozen = gc.get_freeze_count()  # other tests of this process may have left some
    gc.disable()
    try:
        parse("a: 1\n")
        assert gc.isenabled() is False
    finally:
        gc.enable()
    parse("a: 1\n")
    assert gc.isenabled() is True
    assert gc.get_freeze_count() <= frozen


def test_what_another_froze_stays_frozen() -> None:
    gc.freeze()
    try:
        parse("a: 1\n")
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()

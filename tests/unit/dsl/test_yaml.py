"""The YAML loader: YAML 1.2 core types, positions, and limits that hold in time."""

import time
import tracemalloc

import pytest

from noetl.dsl.diagnostics import MOST_DIAGNOSTICS
from noetl.dsl.yaml import MOST_BYTES, MOST_NODES, Map, Place, Seq, load, pointer_of

MIB = 1024 * 1024


def found(source: str | bytes) -> list[tuple[str, int, int]]:
    """The codes and places of what the loader found."""
    return [
        (item.code, item.span.line, item.span.column) for item in load(source).findings.sorted()
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("~", None), ("null", None), ("Null", None), ("NULL", None), ("", None),
        ("true", True), ("False", False), ("TRUE", True),
        ("yes", "yes"), ("no", "no"), ("on", "on"), ("off", "off"), ("y", "y"),
        ("7", 7), ("-7", -7), ("+7", 7), ("007", 7), ("0o17", 15), ("0xFf", 255),
        ("1_000", "1_000"), ("0b11", "0b11"), ("12:30", "12:30"), ("2024-01-01", "2024-01-01"),
        ("1.5", 1.5), ("1e3", 1000.0), (".5", 0.5), ("-1.", -1.0), ("1.2.3", "1.2.3"),
        ("+", "+"), (".", "."), ("=", "="), ("'007'", "007"), ('"1e5"', "1e5"),
        ("18446744073709551615", 2**64 - 1), ("-9223372036854775808", -(2**63)),
    ],
)  # fmt: skip
def test_a_scalar_has_its_yaml_1_2_core_type(text: str, value: object) -> None:
    root = load(f"a: {text}\n").root
    assert root == {"a": value}
    assert type(root["a"]) is type(value)  # type: ignore[index] - the root was just compared


@pytest.mark.parametrize(
    "text",
    ["18446744073709551616", "-9223372036854775809", "9" * 5000, "0x" + "f" * 40, "0o" + "7" * 40,
     "1e999", "-1e999", ".inf", "-.INF", ".nan", ".NaN"],
)  # fmt: skip
def test_a_number_without_a_json_form_is_refused(text: str) -> None:
    assert found(f"a: {text}\n") == [("DSL012", 1, 4)]


def test_keys_are_text_as_written() -> None:
    assert load("200: ok\ntrue: yes\n~: nothing\n007: agent\n").root == {
        "200": "ok", "true": "yes", "~": "nothing", "007": "agent",
    }  # fmt: skip


def test_positions_are_kept_for_keys_values_and_items() -> None:
    root = load("a:\n  - x\n  - bc: 1\n").root
    assert isinstance(root, Map)
    items = root["a"]
    assert isinstance(items, Seq)
    place = Place(items, 1, Place(root, "a", None))
    inner = Place(items[1], "bc", place)
    spans = [(here.span.line, here.span.column) for here in (Place(items, 0, None), place, inner)]
    assert spans == [(2, 5), (3, 5), (3, 9)]
    assert (inner.key_span.line, inner.key_span.column, inner.key_span.end_column) == (3, 5, 7)
    assert inner.pointer == pointer_of(items[1], "bc") == "/a/1/bc"
    assert (root.span.line, root.span.end_line, items.span.line) == (1, 4, 2)


def test_a_pointer_escapes_slashes_and_tildes() -> None:
    root = load("a/b: {c~d: 1}\n").root
    assert isinstance(root, Map)
    assert pointer_of(root["a/b"], "c~d") == "/a~1b/c~0d"


def test_a_place_that_was_never_written_points_to_the_start() -> None:
    place = Place(None, "x", None)
    assert (place.span.line, place.key_span.line) == (1, 1)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("a: 1\na: 2\n", [("DSL013", 2, 1)]),
        ("a: {b: 1, b: 2}\nc: 1\nc: 2\n", [("DSL013", 1, 11), ("DSL013", 3, 1)]),
        ("a: !x 1\n", [("DSL012", 1, 4)]),
        ("a: !!python/object:os.system {}\n", [("DSL012", 1, 4)]),
        ("!k a: 1\n", [("DSL012", 1, 1)]),
        ("a: 1\n---\nb: 2\n", [("DSL012", 2, 1)]),
        ("base: &b {x: 1}\na:\n  <<: *b\n", [("DSL012", 3, 3)]),
        ("? [a]\n: 1\n", [("DSL012", 1, 3)]),
        ("a: [1\n", [("DSL001", 2, 1)]),
        ("a: *nowhere\n", [("DSL001", 1, 4)]),
        ("a: &x [*x]\n", [("DSL011", 1, 8)]),
        ("a: \x00\n", [("DSL001", 1, 4)]),
        ("a: 1\n b: \x07\n", [("DSL001", 2, 5)]),
        ("a: '\ud800'\n", [("DSL001", 1, 1)]),
        (b"a: 1\nb: \xff\n", [("DSL001", 2, 4)]),
    ],
)  # fmt: skip
def test_what_is_not_plain_yaml_is_refused_at_its_place(
    text: str | bytes, where: list[tuple[str, int, int]]
) -> None:
    assert found(text) == where


def test_a_quoted_merge_key_is_an_ordinary_key() -> None:
    assert load("'<<': 1\n").root == {"<<": 1}


def test_a_byte_order_mark_is_dropped() -> None:
    assert load(b"\xef\xbb\xbfa: 1\n").root == {"a": 1}


def test_an_empty_text_is_no_document() -> None:
    assert (load("").root, load("# only a comment\n").root, found("")) == (None, None, [])


def test_an_alias_is_a_copy_so_that_no_two_places_share_a_value() -> None:
    root = load("a: &x {n: [1, {m: 2}]}\nb: *x\nc: [*x]\n").root
    assert isinstance(root, Map)
    assert root == {
        "a": {"n": [1, {"m": 2}]},
        "b": {"n": [1, {"m": 2}]},
        "c": [{"n": [1, {"m": 2}]}],
    }
    assert root["a"] is not root["b"]
    assert root["a"]["n"][1] is not root["b"]["n"][1]
    assert pointer_of(root["b"]["n"][1], "m") == "/b/n/1/m"


def nest(levels: int) -> str:
    return "[" * levels + "]" * levels


def test_sixty_four_levels_are_read_and_one_more_is_not() -> None:
    assert found(nest(64)) == []
    assert found(nest(65)) == [("DSL011", 1, 65)]


def test_a_thousand_aliases_are_read_and_one_more_is_not() -> None:
    def text(count: int) -> str:
        return "a: &a 1\nb: [" + ", ".join(["*a"] * count) + "]\n"

    assert found(text(1000)) == []
    assert [item[0] for item in found(text(1001))] == ["DSL011"]


def test_nodes_are_counted_before_aliases_are_expanded() -> None:
    row = "&r [" + ", ".join(["1"] * 999) + "]"
    assert found(f"a: {row}\nb: [{', '.join(['*r'] * 98)}]\n") == []
    assert [item[0] for item in found(f"a: {row}\nb: [{', '.join(['*r'] * 101)}]\n")] == ["DSL011"]


def test_a_hundred_thousand_plain_nodes_are_the_most() -> None:
    assert [item[0] for item in found("[" + "1," * (MOST_NODES + 1) + "]")] == ["DSL011"]


def test_one_mebibyte_is_read_and_one_byte_more_is_not() -> None:
    padding = "# " + "x" * (MOST_BYTES - 8) + "\n"
    text = f"a: 1\n{padding}"
    assert len(text) == MOST_BYTES
    assert found(text) == []
    assert found(text + " ") == [("DSL010", 1, 1)]
    assert found((text + " ").encode()) == [("DSL010", 1, 1)]
    assert found("é" * (MOST_BYTES // 2 + 1)) == [("DSL010", 1, 1)]


def bomb(levels: int = 9, width: int = 9) -> str:
    """The classic exponential document."""
    lines = ["a0: &a0 [" + ", ".join(["lol"] * width) + "]"]
    lines += [
        f"a{level}: &a{level} [" + ", ".join([f"*a{level - 1}"] * width) + "]"
        for level in range(1, levels)
    ]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(bomb(), id="alias bomb"),
        pytest.param(nest(65), id="65 levels"),
        pytest.param("[" * 500_000, id="open brackets"),
        pytest.param("{a: " * 200_000, id="open braces"),
        pytest.param("- " * 500_000, id="nested dashes"),
        pytest.param("? " * 500_000, id="nested questions"),
        pytest.param("a: " + "x" * (10 * MIB), id="10 MB scalar"),
        pytest.param("x" * (MIB + 1), id="1 MiB and a byte"),
        pytest.param("a: !!binary " + "A" * 1000, id="tag"),
        pytest.param("a: 1\n" * 2, id="duplicate key"),
        pytest.param("&a [*a, *a]", id="alias of itself"),
    ],
)
def test_a_bomb_is_refused_fast_and_in_little_memory(text: str) -> None:
    fastest = 1.0
    for _ in range(3):
        before = time.perf_counter()
        assert load(text).findings.has_errors
        fastest = min(fastest, time.perf_counter() - before)
    assert fastest < 0.050
    tracemalloc.start()
    load(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * MIB


def test_findings_past_the_cap_are_counted() -> None:
    document = load("".join(f"a: {index}\n" for index in range(MOST_DIAGNOSTICS + 3)))
    assert len(document.findings.sorted()) == MOST_DIAGNOSTICS
    assert document.findings.overflow == 2

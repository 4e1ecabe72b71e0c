from hashlib import sha256

import msgspec
import pytest

from noetl.blobs.base import checked
from noetl.blobs.naming import InvalidRef
from noetl.blobs.refs import (
    execution_of,
    extracted,
    id_of,
    key_of,
    preview,
    ref_of,
    reference_of,
)
from noetl.dsl.views import Reference


@pytest.mark.parametrize(
    ("step", "name"),
    [
        ("load", "load"),
        ("a/b", "a/b"),
        ("größe", "gr%C3%B6%C3%9Fe"),
        ("a b", "a%20b"),
        ("..", "%2E."),
        (".x", "%2Ex"),
        ("a~b.c", "a~b.c"),
        ("100%", "100%25"),
    ],
)
def test_a_reference_has_one_form_and_its_key_is_a_key(step, name):
    ref = ref_of("331204559102443520", step, "0af3")
    assert ref == f"noetl://execution/331204559102443520/result/{name}/0af3"
    assert key_of(ref) == f"execution/331204559102443520/result/{name}/0af3"
    assert checked(key_of(ref)) == key_of(ref)
    assert execution_of(ref) == "331204559102443520"


def test_forms_of_one_reference_have_one_key():
    assert (
        key_of("noetl://execution/7/result/l%6Fad/x")
        == key_of("noetl://execution/7/result/load/x")
        == "execution/7/result/load/x"
    )
    assert key_of("noetl://execution/7/manifest/load/x") == "execution/7/manifest/load/x"


@pytest.mark.parametrize(
    "ref",
    [
        "",
        "http://execution/7/result/load/x",
        "noetl://execution/7/result/load",
        "noetl://execution/7/result//x",
        "noetl://execution//result/load/x",
        "noetl://execution/7/result/load/",
        "noetl://execution/7/other/load/x",
        "noetl://plugin/a@1",
        "noetl://execution/7/result/é/x",
        "noetl://execution/7/result/%ff/x",
        "noetl://execution/7/result/" + "x" * 2048 + "/x",
    ],
)
def test_a_text_that_is_no_reference_is_refused(ref):
    with pytest.raises(InvalidRef) as caught:
        key_of(ref)
    assert (caught.value.code, caught.value.status) == ("bad_ref", 400)


def test_an_empty_step_has_no_reference():
    with pytest.raises(InvalidRef):
        ref_of("7", "", "x")


def test_bytes_are_named_by_their_content():
    assert id_of(b"abc") == sha256(b"abc").hexdigest()[:32]


def test_small_parts_are_kept_as_they_are_and_large_ones_not_at_all():
    value = {
        "status": "ok",
        "n": 3,
        "ratio": 0.5,
        "flag": True,
        "nothing": None,
        "text": "x" * 510,
        "long": "x" * 511,
        "stats": {"done": 2, "of": [1, 2]},
        "big": {"x": "y" * 600},
        "items": list(range(1000)),
        7: "no name",
    }
    assert extracted(value) == {
        "status": "ok",
        "n": 3,
        "ratio": 0.5,
        "flag": True,
        "nothing": None,
        "text": "x" * 510,
        "stats": {"done": 2, "of": [1, 2]},
        "_lengths": {"items": 1000},
    }


def test_rows_are_told_by_number_columns_and_beginning():
    rows = [{"id": n, "name": f"n{n}"} for n in range(5000)]
    facts = {"row_count": 5000, "columns": ["id", "name"], "_rows": rows[:3]}
    assert extracted(rows) == facts
    assert extracted({"rows": rows}) == facts | {"_lengths": {"rows": 5000}}
    assert extracted({"messages": rows}) == facts | {"_lengths": {"messages": 5000}}


def test_what_the_value_says_itself_is_not_replaced():
    value = {"rows": list(range(5000)), "row_count": 7, "columns": None, "_rows": 1, "_lengths": 2}
    assert extracted(value) == {"row_count": 7, "columns": None, "_rows": 1, "_lengths": 2}


def test_columns_may_be_longer_than_other_parts():
    columns = [f"column_{n}" for n in range(100)]
    assert extracted({"columns": columns, "other": columns}) == {
        "columns": columns,
        "_lengths": {"columns": 100, "other": 100},
    }


def test_fewer_first_rows_are_told_when_they_are_long():
    rows = [{"x": "a" * 1500}] * 5
    assert extracted(rows)["_rows"] == rows[:2]
    assert extracted([{"x": "a" * 5000}] * 5) == {"row_count": 5, "columns": ["x"]}
    assert extracted([1, 2, 3, 4]) == {"row_count": 4, "_rows": [1, 2, 3]}
    assert extracted([]) == {"row_count": 0}


def test_a_deep_part_is_left_out():
    def nested(depth):
        value = 1
        for _ in range(depth):
            value = [value]
        return value

    assert extracted({"a": nested(7)}) == {"a": nested(7), "_lengths": {"a": 1}}
    assert extracted({"a": nested(8)}) == {"_lengths": {"a": 1}}
    assert extracted({"a": nested(5000)}) == {"_lengths": {"a": 1}}


@pytest.mark.parametrize("value", [None, 7, "text" * 100_000, b"raw"])
def test_of_a_value_without_parts_nothing_is_told(value):
    assert extracted(value) == {}


@pytest.mark.parametrize(
    "value",
    [
        {f"k{n}": n for n in range(10_000)},
        {f"k{n}": "é" * 200 for n in range(100)},
        {f"k{n}": [n] for n in range(10_000)},
        {"k" * 9000: 1, "a": 2},
        {"columns": ["é" * 5000], "a": 2},
        [{f"c{n}": "x" for n in range(2000)}] * 4,
        {"rows": [{"x": "\n" * 900}] * 9, **{f"k{n}": "\n" * 200 for n in range(60)}},
    ],
)
def test_a_summary_is_never_over_its_size_and_equal_for_equal_values(value):
    summary = extracted(value)
    assert len(msgspec.json.encode(summary)) <= 8192
    assert msgspec.json.encode(extracted(value)) == msgspec.json.encode(summary)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", ""),
        (b'{"a":1}', '{"a":1}'),
        (b"x" * 5000, "x" * 1024),
        ("é".encode() * 600, "é" * 512),
        (b"x" + "é".encode() * 600, "x" + "é" * 511),
        (b"\xff\x00", "base64:/wA="),
        (b"a\x00", "base64:YQA="),
        ("é".encode()[:1], "base64:ww=="),
    ],
)
def test_a_preview_is_the_beginning_as_text(data, text):
    assert preview(data) == text
    assert len(preview(data).encode()) <= 1024


def test_a_preview_of_raw_bytes_is_no_longer_than_one_of_text():
    assert len(preview(b"\xff" * 5000)) <= 1024


def test_a_reference_tells_all_that_is_known_without_a_fetch():
    value = [{"id": 1}] * 2
    data = msgspec.json.encode(value)
    ref = ref_of("7", "load", id_of(data))
    assert reference_of(ref, data, value, store="kv") == Reference(
        ref=ref,
        store="kv",
        size=19,
        sha256=sha256(data).hexdigest(),
        total=2,
        extracted={"row_count": 2, "columns": ["id"], "_rows": value},
        preview='[{"id":1},{"id":1}]',
    )

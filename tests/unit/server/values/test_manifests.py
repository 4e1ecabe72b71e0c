"""Stored values that are read as one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.blobs.base import BlobDamaged
from noetl.server.values.manifests import joined

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def part(data: bytes, step: int = 3):
    async def chunks():
        for start in range(0, len(data), step):
            yield data[start : start + step]

    return chunks


async def together(strategy: str, *parts_of: bytes, step: int = 3) -> bytes:
    parts = [part(data, step) for data in parts_of]
    return b"".join([chunk async for chunk in joined(strategy, parts)])


async def test_bytes_are_concatenated_and_the_last_part_replaces() -> None:
    assert await together("concat", b"a,b\n", b"", b"1,2\n") == b"a,b\n1,2\n"
    assert await together("replace", b"[1]", b"[2]") == b"[2]"


@given(st.lists(JSON, min_size=1, max_size=5), st.integers(1, 9), st.sampled_from([None, 1]))
async def test_items_are_appended_to_one_list(values, step, indent) -> None:
    parts_of = [f" {json.dumps(value, indent=indent)}\n".encode() for value in values]
    expected = [item for one in values for item in (one if isinstance(one, list) else [one])]
    assert json.loads(await together("append", *parts_of, step=step)) == expected


@given(st.lists(st.dictionaries(st.text(), JSON, max_size=4), min_size=1, max_size=4))
async def test_the_last_value_of_a_key_is_merged(values) -> None:
    expected: dict[str, object] = {}
    for value in values:
        expected |= value
    text = await together("merge", *(json.dumps(value).encode() for value in values))
    assert json.loads(text, object_pairs_hook=_once) == expected


def _once(pairs):
    assert len({key for key, _ in pairs}) == len(pairs)
    return dict(pairs)


@pytest.mark.parametrize(
    ("strategy", "data"),
    [("append", b"[1,2"), ("append", b"  "), ("merge", b"[1]"), ("merge", b"\xff")],
)
async def test_a_part_that_is_no_json_is_damage(strategy: str, data: bytes) -> None:
    with pytest.raises(BlobDamaged):
        await together(strategy, b"[1]" if strategy == "append" else b"{}", data)

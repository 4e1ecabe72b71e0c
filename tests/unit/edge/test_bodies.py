"""What JSON may not hold."""

from __future__ import annotations

import gzip
import hashlib
import tracemalloc

import pytest
import zstandard

from noetl.edge.bodies import Unpacking, must_be_plain
from noetl.errors import NoetlError


def fault(data: bytes) -> tuple[str, str] | None:
    try:
        must_be_plain(data)
    except NoetlError as refusal:
        return refusal.code, refusal.errors[0]["pointer"]
    return None


def test_plain_bodies_pass() -> None:
    for body in (b"{}", b'{"a":{"a":1},"b":[{"a":1},{"a":2}]}', b'{"a":"\\\\u0000"}', b"no json"):
        assert fault(body) is None
    assert fault(b"[" * 64 + b"]" * 64) is None
    assert fault(b'{"a":"' + b"[" * 100 + b'"}') is None
    assert fault(b"[" + b",".join([b"[[]]"] * 100) + b"]") is None


def test_a_key_that_stands_twice_is_named() -> None:
    assert fault(b'{"a":1,"b":[{},{"c/d":1,"e":2,"c/d":3}]}') == ("bad_value", "/b/1/c~1d")
    assert fault(b'{"a":1,"a":2}') == ("bad_value", "/a")


def test_nan_nul_and_depth_are_refused() -> None:
    assert fault(b'{"a":NaN}') == ("bad_value", "")
    assert fault(b'{"a":[1,-Infinity]}') == ("bad_value", "")
    assert fault(b'{"a":{"b":"x\\u0000"}}') == ("bad_value", "/a/b")
    assert fault(b'{"x\\u0000":1}') == ("bad_value", "/x\0")
    assert fault(b"[" * 65 + b"]" * 65) == ("bad_value", "")
    assert fault(b'["]]]]",' * 65 + b"1" + b"]" * 65) == ("bad_value", "")
    assert fault(b"[" * 100_000) == ("bad_value", "")


def unpacked(data: bytes, most: int, step: int = 1 << 16, coding: str = "gzip") -> bytes:
    packing = Unpacking(most, coding)
    made = b"".join(packing.feed(data[i : i + step]) for i in range(0, len(data), step))
    packing.end()
    return made


def test_a_packed_body_expands_within_its_limits() -> None:
    text = bytes(range(256)) * 40
    assert unpacked(gzip.compress(text, 0), len(text), step=100) == text


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (gzip.compress(bytes(100_000), mtime=0), "body_too_large"),
        (gzip.compress(bytes(range(256)) * 40, 0, mtime=0), "body_too_large"),
        (gzip.compress(b"{}", mtime=0)[:-4], "bad_json"),
        (b"no gzip", "bad_json"),
    ],
)
def test_a_bomb_and_a_broken_body_are_refused(data: bytes, code: str) -> None:
    with pytest.raises(NoetlError) as refused:
        unpacked(data, 5_000)
    assert refused.value.code == code


PACKED = {
    "gzip": lambda data: gzip.compress(data, 1, mtime=0),
    "zstd": lambda data: zstandard.compress(data, 1),
}
TEXT = bytes(range(256)) * 40


@pytest.mark.parametrize("coding", PACKED)
@pytest.mark.parametrize("step", [1, 7, 100, 1 << 20])
def test_a_body_expands_however_it_is_cut(coding: str, step: int) -> None:
    text = b"".join(hashlib.sha256(bytes([n])).digest() for n in range(250))
    assert unpacked(PACKED[coding](text), len(text), step, coding) == text


@pytest.mark.parametrize("coding", PACKED)
@pytest.mark.parametrize("step", [5, 1 << 20])
def test_packed_pieces_may_follow_each_other(coding: str, step: int) -> None:
    text = b"".join(hashlib.sha256(bytes([n])).digest() for n in range(50))
    packed = PACKED[coding]
    data = packed(text) + packed(b"") + packed(b"{}" + text)
    assert unpacked(data, 1 << 20, step, coding) == text + b"{}" + text


@pytest.mark.parametrize("coding", PACKED)
@pytest.mark.parametrize("step", [1, 64, 1 << 20])
def test_a_bomb_is_noticed_before_it_is_in_memory(coding: str, step: int) -> None:
    bomb = PACKED[coding](bytes(64 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(NoetlError) as refused:
            unpacked(bomb, 64 << 20, step, coding)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert refused.value.code == "body_too_large"
    assert peak < 45 * len(bomb) + (4 << 20)  # 20 times what came, joined, and a few blocks


def test_a_bomb_of_tiny_blocks_is_noticed_too() -> None:
    # A frame of blocks that are 4 bytes each and say "128 KiB of zeros".
    block = (131_072 << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    frame = bytes.fromhex("28b52ffd") + bytes([0b0000_0000, 0x38]) + block * 100_000
    tracemalloc.start()
    try:
        with pytest.raises(NoetlError) as refused:
            unpacked(frame, 64 << 20, 1 << 20, "zstd")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert refused.value.code == "body_too_large"
    assert peak < 45 * len(frame) + (4 << 20)


@pytest.mark.parametrize("coding", PACKED)
def test_a_body_is_counted_after_it_was_expanded(coding: str) -> None:
    text = b"".join(hashlib.sha256(bytes([n])).digest() for n in range(100))
    packed = PACKED[coding](text)
    assert unpacked(packed, len(text), coding=coding) == text
    with pytest.raises(NoetlError) as refused:
        unpacked(packed, len(text) - 1, coding=coding)
    assert refused.value.code == "body_too_large"


@pytest.mark.parametrize("coding", PACKED)
@pytest.mark.parametrize("damage", ["cut", "garbage after", "other", "none", "second cut"])
def test_a_broken_packed_body_is_refused(coding: str, damage: str) -> None:
    whole = PACKED[coding](b"".join(hashlib.sha256(bytes([n])).digest() for n in range(10)))
    data = {
        "cut": whole[:-5],
        "garbage after": whole + b"garbage",
        "other": b"no such thing",
        "none": b"",
        "second cut": whole + whole[:-9],
    }[damage]
    with pytest.raises(NoetlError) as refused:
        unpacked(data, 1 << 20, coding=coding)
    assert refused.value.code == "bad_json"


def test_a_window_that_no_decoder_should_have_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=24)
    maker = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    data = maker.compress(bytes(range(256)) * 400) + maker.flush()
    with pytest.raises(NoetlError) as refused:
        unpacked(data, 64 << 20, coding="zstd")
    assert refused.value.code == "bad_json"

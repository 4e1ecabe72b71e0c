"""What JSON may not hold."""

from __future__ import annotations

import gzip

import pytest

from noetl.errors import NoetlError
from noetl.server.bodies import Unpacking, must_be_plain


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


def unpacked(data: bytes, most: int, step: int = 1 << 16) -> bytes:
    packing = Unpacking(most)
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

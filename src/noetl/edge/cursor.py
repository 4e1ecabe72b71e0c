"""Cursors of lists: opaque, signed, bound to the filters of their list, good for a day."""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.clock import SystemClock
from noetl.edge.errors import Unacceptable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.clock import Clock

VALID_S: Final = 86_400
_SIGNATURE: Final = 16
_encode: Final = msgspec.json.Encoder(order="deterministic").encode
_decode: Final = msgspec.json.Decoder(tuple[int, Any]).decode


class Cursors:
    """Writes and reads cursors."""

    def __init__(self, key: bytes, clock: Clock | None = None) -> None:
        self._key = key
        self._clock = clock or SystemClock()

    def encode(self, filters: Mapping[str, Any], position: object) -> str:
        """A cursor that goes on after a position of the list with these filters."""
        body = _encode((int(self._clock.now().timestamp()), position))
        return urlsafe_b64encode(self._sign(filters, body) + body).rstrip(b"=").decode()

    def decode(self, text: str, filters: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any JSON
        """The position; 422 `bad_cursor` for one that is not of this list, or too old."""
        try:
            data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
            signature, body = data[:_SIGNATURE], data[_SIGNATURE:]
            if not hmac.compare_digest(signature, self._sign(filters, body)):
                raise _bad()
            made_at, position = _decode(body)
        except ValueError:
            raise _bad() from None
        if self._clock.now().timestamp() > made_at + VALID_S:
            raise Unacceptable("the cursor is older than a day", code="bad_cursor")
        return position

    def _sign(self, filters: Mapping[str, Any], body: bytes) -> bytes:
        return hmac.digest(self._key, _encode(dict(filters)) + b"\n" + body, "sha256")[:_SIGNATURE]


def _bad() -> Unacceptable:
    return Unacceptable(
        "the cursor is not one of this list",
        code="bad_cursor",
        hint="keep the filters of the first page, and pass `next_cursor` unchanged",
    )

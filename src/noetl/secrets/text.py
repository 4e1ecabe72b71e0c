"""Bytes as text: base64 with one spelling for each value."""

from __future__ import annotations

import base64
import binascii


def to_text(data: bytes) -> str:
    """The bytes as base64."""
    return base64.b64encode(data).decode("ascii")


def from_text(text: str) -> bytes:
    """The bytes of a base64 text; `ValueError` for any text that `to_text` would not give."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("it is not base64") from None
    if to_text(data) != text:
        raise ValueError("it is not base64 in its one spelling")
    return data

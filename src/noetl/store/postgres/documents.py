"""JSON that users own, as a column holds it: the order of maps and the spelling of numbers stay.

PostgreSQL has no U+0000. It is written as U+F8F0 and a zero, U+F8F0 itself as U+F8F0 and a one:
both are so rare that a look at the encoded text decides whether anything is to be done.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode
_MARK: Final = "\uf8f0"
_MARK_BYTES: Final = _MARK.encode()
_NUL: Final = b"\\u0000"


def document(value: object) -> str | None:
    """The text of a value; none for none."""
    return None if value is None else written(value)


def written(value: object) -> str:
    """The text of a value, `null` included."""
    text = _encode(value)
    if _NUL in text or _MARK_BYTES in text:
        text = _encode(_mapped(msgspec.to_builtins(value), _hidden))
    return text.decode()


def value_of(text: str | None) -> Any:  # noqa: ANN401 - JSON that the user owns
    """The value of a text; none for none."""
    if text is None:
        return None
    value = _decode(text)
    return _mapped(value, _shown) if _MARK in text else value


def stored(text: str) -> str:
    """A text for a column of its own."""
    return _hidden(text) if "\0" in text or _MARK in text else text


def shown(text: str) -> str:
    """The text of such a column."""
    return _shown(text) if _MARK in text else text


def shown_or_none(text: str | None) -> str | None:
    """The text of such a column."""
    return None if text is None else shown(text)


def _hidden(text: str) -> str:
    return text.replace(_MARK, _MARK + "1").replace("\0", _MARK + "0")


def _shown(text: str) -> str:
    return text.replace(_MARK + "0", "\0").replace(_MARK + "1", _MARK)


def _mapped(value: Any, change: Any) -> Any:  # noqa: ANN401 - as above
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_mapped(item, change) for item in value]
    if isinstance(value, dict):
        return {change(key): _mapped(item, change) for key, item in value.items()}
    return value

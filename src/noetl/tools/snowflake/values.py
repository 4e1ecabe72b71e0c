"""Values of Snowflake as JSON has them, and placeholders as Snowflake has them."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from noetl.tools.base import ToolError
from noetl.tools.statements import SNOWFLAKE, pieces
from noetl.tools.tabular.columns import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_PLACE: Final = re.compile(r"\?|%\((?P<name>[^)]*)\)s|%s(?!\w)")
_LARGEST: Final = 2**63
_PLAIN_DIGITS: Final = 18
# Numbers of types, as the connector tells them.
_FIXED, _REAL, _BOOLEAN = 0, 1, 13
_JSON: Final = frozenset({5, 9, 10, 16, 17})
_TEXTS: Final = frozenset({2, 3, 4, 6, 7, 8, 11, 12, 14, 15})


def bound(statement: str, params: Any) -> tuple[str, list[Any] | None]:  # noqa: ANN401 - a list or a map
    """The statement with question marks, and what stands for them; only code is looked at."""
    if not params:
        return statement, None
    binding = _Binding(params)
    text = "".join(
        _PLACE.sub(binding.place, piece.text) if piece.kind == "code" else piece.text
        for piece in pieces(statement, SNOWFLAKE)
    )
    return text, binding.values()


class _Binding:
    def __init__(self, params: Any) -> None:  # noqa: ANN401 - a list or a map
        self._params = params
        self._names: list[str] = []
        self._used = 0

    def place(self, found: re.Match[str]) -> str:
        name = found["name"]
        if (name is None) == isinstance(self._params, Mapping):
            raise _wrong("a list has ? or %s, a map has %(name)s")
        if name is not None and name not in self._params:
            raise _wrong(f"there is no `{name}`")
        self._names += [] if name is None else [name]
        self._used += 1
        return "?"

    def values(self) -> list[Any]:
        given = self._params
        found = [given[name] for name in self._names] if self._names else list(given)
        if self._used != len(found):
            raise _wrong(f"{len(found)} values for {self._used} placeholders")
        return [json.dumps(one) if isinstance(one, (dict, list)) else one for one in found]


def _wrong(said: str) -> ToolError:
    return ToolError("config", "invalid_config", f"/params: {said}")


def columns_of(description: Iterable[Any]) -> list[Column]:
    """The columns of a result."""
    return [Column(item.name, _kind(item)) for item in description]


def _kind(item: Any) -> str:  # noqa: ANN401 - a column as the connector tells it
    code = item.type_code
    if code == _FIXED:
        if item.scale:
            return "text"
        is_small = item.scale == 0 and (item.precision or 0) <= _PLAIN_DIGITS
        return "int" if is_small else ""
    if code in _JSON:
        return "json"
    return {_REAL: "float", _BOOLEAN: "bool"}.get(code, "text" if code in _TEXTS else "")


def row_maker(description: Iterable[Any], names: list[str] | None) -> Callable[[Any], Any]:
    """What makes a row of JSON of a row of the connector; with names it is a map."""
    known = [_parsed if item.type_code in _JSON else _plain for item in description]

    def make(row: Any) -> Any:  # noqa: ANN401 - a row
        values = [plain(value) for plain, value in zip(known, row, strict=True)]
        return values if names is None else dict(zip(names, values, strict=True))

    return make


def _parsed(value: Any) -> Any:  # noqa: ANN401 - any value
    """Half-structured data, which comes as its text."""
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            return value  # `undefined` is no JSON
    return _plain(value)


def _plain(value: Any) -> Any:  # noqa: ANN401 - any value
    if value is None or isinstance(value, (str, bool, float)):
        return value
    if isinstance(value, int):
        return value if -_LARGEST <= value < _LARGEST else str(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        text = value.isoformat()
        return f"{text.removesuffix('+00:00')}Z" if not value.utcoffset() else text
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else str(value)

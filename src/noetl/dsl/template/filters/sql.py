"""Filters that quote values and names for PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.dsl.template.errors import TemplateFailure
from noetl.dsl.template.filters.arguments import text
from noetl.dsl.template.values import number_text, to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from noetl.dsl.template.limits import Meter

# PostgreSQL cuts longer names silently, so two of them could become one.
_NAME_BYTES: Final = 63


def _no_nul(value: str) -> str:
    if "\0" in value:
        raise TemplateFailure("PostgreSQL text cannot hold a NUL character")
    return value


def _quoted(value: str) -> str:
    doubled = _no_nul(value).replace("'", "''")
    if "\\" not in doubled:
        return f"'{doubled}'"
    # A leading blank keeps `E` apart from whatever stands before the literal.
    return " E'" + doubled.replace("\\", "\\\\") + "'"


def _sql_literal(meter: Meter, value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        # A minus directly after another minus would start a comment.
        return number_text(value) if value >= 0 else f"({number_text(value)})"
    source = value if isinstance(value, str) else to_json(value, meter)
    meter.length(len(source) + source.count("'") + source.count("\\"))
    return _quoted(source)


def _sql_ident(meter: Meter, value: object) -> str:
    name = text(value, "a name")
    meter.read(len(name))
    if not _no_nul(name) or len(name.encode(errors="replace")) > _NAME_BYTES:
        raise TemplateFailure(f"a name must have 1 to {_NAME_BYTES} bytes")
    return meter.text('"' + name.replace('"', '""') + '"')


FILTERS: Final[Mapping[str, Callable[..., object]]] = {
    "sql_ident": _sql_ident,
    "sql_literal": _sql_literal,
}

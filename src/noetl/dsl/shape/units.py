"""Shapes of values with a unit or a grammar of their own: conditions, durations, sizes, `set`."""

from __future__ import annotations

import dataclasses
import re
from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar

from noetl.dsl.shape import TEMPLATE_SCHEMA, Definitions, JsonSchema
from noetl.dsl.shape.reader import type_name
from noetl.dsl.yaml import Place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.dsl.shape.reader import Reader

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
DURATION_PATTERN = r"^[0-9]+(\.[0-9]+)?(ms|s|m|h|d)$"
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(|[kKMGT]B|[KMGT]iB?)")
SIZE_PATTERN = r"^[0-9]+(\.[0-9]+)?\s*(|[kKMGT]B|[KMGT]iB?)$"
_POWERS = {"K": 1, "M": 2, "G": 3, "T": 4}
SET_PREFIXES = ("ctx", "iter", "step")
_SET_KEY = re.compile(r"(ctx|iter|step)(\.[A-Za-z_][A-Za-z0-9_-]{0,127})+")
SET_PATTERN = r"^((ctx|iter|step)(\.[A-Za-z_][A-Za-z0-9_-]{0,127})+|[A-Za-z_][A-Za-z0-9_-]{0,127})$"


def seconds(text: str) -> float | None:
    """A duration text such as `500ms` or `2h` in seconds; None when it is not one."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        return None
    amount = float(found[1]) * _SECONDS[found[2]]
    return round(amount, 6) if isfinite(amount) else None


def size_bytes(text: str) -> int | None:
    """A size text such as `50Gi` or `10MB` in bytes; None when it is not one."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        return None
    unit = found[2]
    base = 1024 if "i" in unit else 1000
    amount = float(found[1]) * (base ** _POWERS[unit[0].upper()] if unit else 1)
    return int(amount) if isfinite(amount) else None


@dataclasses.dataclass(frozen=True, slots=True)
class Duration:
    """Seconds, or text with a unit: `500ms 30s 5m 2h 1d`; read as seconds."""

    role: str = ""
    zero: bool = False
    least: float = 0.0
    code: str = "DSL039"
    pattern: str = DURATION_PATTERN
    blank: ClassVar[None] = None

    def read(self, value: Any, place: Place, reader: Reader) -> float | str | None:  # noqa: ANN401 - see Shape
        """Read a duration in seconds."""
        if isinstance(value, str):
            if self.role and reader.text(value, place, self.role):
                return value
            amount = seconds(value)
            if amount is None:
                hint = "write seconds as a number, or 500ms, 30s, 5m, 2h, 1d"
                reader.report(self.code, f"`{value[:40]}` is not a duration", place, hint=hint)
                return None
        elif isinstance(value, bool) or not isinstance(value, (int, float)):
            reader.wrong_type(place, value, "a duration")
            return None
        else:
            amount = value
        if amount < self.least or (amount == 0 and not self.zero):
            least = self.least or ("0" if self.zero else "more than 0")
            reader.report(
                self.code, f"{value} is too short", place, hint=f"at least {least} seconds"
            )
        return amount

    def schema(self, definitions: Definitions) -> JsonSchema:
        """A number of seconds or a text with a unit."""
        del definitions
        bound = "minimum" if self.zero or self.least else "exclusiveMinimum"
        forms: list[JsonSchema] = [
            {"type": "number", bound: self.least or 0},
            {"type": "string", "pattern": self.pattern},
        ]
        return {"anyOf": forms + ([TEMPLATE_SCHEMA] if self.role else [])}

    def words(self) -> str:
        """A duration."""
        return "seconds, or 500ms 30s 5m 2h 1d"


@dataclasses.dataclass(frozen=True, slots=True)
class Size:
    """Bytes, or text with a unit: `64Ki 10MB 1Gi`; read as bytes."""

    role: str = ""
    most: int = 0
    code: str = "DSL039"
    blank: ClassVar[int] = 0

    def read(self, value: Any, place: Place, reader: Reader) -> int | str:  # noqa: ANN401 - see Shape
        """Read a size in bytes."""
        amount: int | None
        if isinstance(value, str):
            if self.role and reader.text(value, place, self.role):
                return value
            amount = size_bytes(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            amount = value
        else:
            reader.wrong_type(place, value, "a size in bytes")
            return 0
        if amount is None or amount < 1:
            hint = "write bytes as a number, or 64Ki, 10MB, 1Gi"
            reader.report(self.code, f"`{str(value)[:40]}` is not a size", place, hint=hint)
            return 0
        if self.most and amount > self.most:
            reader.report(self.code, f"{amount} bytes; {self.most} is the most", place)
        return amount

    def schema(self, definitions: Definitions) -> JsonSchema:
        """A number of bytes or a text with a unit."""
        del definitions
        number: JsonSchema = {"type": "integer", "minimum": 1}
        if self.most:
            number["maximum"] = self.most
        forms: list[JsonSchema] = [number, {"type": "string", "pattern": SIZE_PATTERN}]
        return {"anyOf": forms + ([TEMPLATE_SCHEMA] if self.role else [])}

    def words(self) -> str:
        """A size."""
        return "bytes, or 64Ki 10MB 1Gi"


@dataclasses.dataclass(frozen=True, slots=True)
class Condition:
    """A boolean, a template, or a bare expression."""

    role: str
    blank: ClassVar[bool] = True

    def read(self, value: Any, place: Place, reader: Reader) -> bool | str:  # noqa: ANN401 - see Shape
        """Read a condition and compile its expression."""
        if isinstance(value, bool):
            return value
        if isinstance(value, str):
            reader.condition(value, place, self.role)
            return value
        reader.wrong_type(place, value, "a condition")
        return True

    def schema(self, definitions: Definitions) -> JsonSchema:
        """A boolean or an expression text."""
        del definitions
        return {"type": ["boolean", "string"]}

    def words(self) -> str:
        """A condition."""
        return "condition: true, false, or an expression"


@dataclasses.dataclass(frozen=True, slots=True)
class SetMap:
    """Writes: `ctx.a`, `iter.a`, `step.a` to values that may be templates."""

    role: str

    def read(self, value: Any, place: Place, reader: Reader) -> Mapping[str, Any]:  # noqa: ANN401 - see Shape
        """Read the writes; every key names its scope."""
        if not isinstance(value, dict):
            reader.wrong_type(place, value, "a map")
            return {}
        for name, item in value.items():
            where = Place(value, name, place)
            if not _SET_KEY.fullmatch(name):
                hint = "keys are `ctx.name`, `iter.name` or `step.name`"
                reader.report(
                    "DSL031", f"`{name[:80]}` cannot be set", where, on_key=True, hint=hint
                )
            reader.walk(item, where, self.role)
            inside = next((other for other in value if name.startswith(f"{other}.")), None)
            if inside is not None:
                message = f"`{name}` writes into `{inside}`, which is written here too"
                reader.report("DSL039", message, where, on_key=True, hint="write one of them")
        return value

    def schema(self, definitions: Definitions) -> JsonSchema:
        """A map of scoped names."""
        del definitions
        return {"type": "object", "propertyNames": {"pattern": SET_PATTERN}}

    def words(self) -> str:
        """Writes."""
        return "map of `ctx.x`, `iter.x`, `step.x` to values"


@dataclasses.dataclass(frozen=True, slots=True)
class Scalar:
    """A text, number or boolean, kept as it was written."""

    blank: ClassVar[str] = ""

    def read(self, value: Any, place: Place, reader: Reader) -> Any:  # noqa: ANN401 - see Shape
        """Read any scalar."""
        if type_name(value) in {"a map", "a list", "null"}:
            reader.wrong_type(place, value, "text or a number")
            return ""
        return value

    def schema(self, definitions: Definitions) -> JsonSchema:
        """Any scalar type."""
        del definitions
        return {"type": ["string", "number", "boolean"]}

    def words(self) -> str:
        """A scalar."""
        return "text or number"

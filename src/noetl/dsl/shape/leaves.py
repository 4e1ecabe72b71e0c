"""Shapes of single values: texts, names, numbers, flags, choices, and data of the author's own."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any, ClassVar

from noetl.dsl.shape.base import Definitions, JsonSchema, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.dsl.shape.reader import Reader
    from noetl.dsl.yaml import Place

TEMPLATE_SCHEMA: JsonSchema = {"type": "string", "pattern": r"\{[{%#]"}
NAME_PATTERN = r"^[A-Za-z_][A-Za-z0-9_-]{0,127}$"
NAME = re.compile(NAME_PATTERN[1:-1])


def is_name(text: str) -> bool:
    """Whether a text can name a step, a task or an entry."""
    return NAME.fullmatch(text) is not None


@dataclasses.dataclass(frozen=True, slots=True)
class Data:
    """Any value the author owns; texts inside may be templates, rendered as `role` says."""

    role: str = ""
    only: str = ""
    blank: ClassVar[None] = None

    @property
    def takes_null(self) -> bool:
        """Whether null is one of the values; in place of a map it is an absent key."""
        return not self.only

    def read(self, value: Any, place: Place, reader: Reader) -> Any:  # noqa: ANN401 - see Shape
        """Keep the value; compile the templates inside."""
        if self.only == "map" and not isinstance(value, dict):
            reader.wrong_type(place, value, "a map")
            return {}
        if self.role:
            reader.walk(value, place, self.role)
        return value

    def schema(self, definitions: Definitions) -> JsonSchema:
        """Anything, or any map."""
        del definitions
        return {"type": "object"} if self.only == "map" else {}

    def words(self) -> str:
        """A free value."""
        return "map of your own" if self.only == "map" else "any value"


@dataclasses.dataclass(frozen=True, slots=True)
class Text:
    """A text; with a `role` it may be a template."""

    role: str = ""
    pattern: str = ""
    code: str = "DSL039"
    filled: bool = False
    blank: ClassVar[str] = ""

    def read(self, value: Any, place: Place, reader: Reader) -> str:  # noqa: ANN401 - see Shape
        """Read a text; other scalars are refused, never turned into text."""
        if not isinstance(value, str):
            reader.wrong_type(place, value, "text")
            return ""
        if self.filled and not value.strip():
            reader.report("DSL051", f"`{place.key}` is empty", place)
        if self.role and reader.text(value, place, self.role):
            return value
        if self.pattern and not re.fullmatch(
            self.pattern.removeprefix("^").removesuffix("$"), value
        ):
            reader.report(self.code, f"`{value[:80]}` does not match {self.pattern}", place)
        return value

    def schema(self, definitions: Definitions) -> JsonSchema:
        """A string, with its pattern."""
        del definitions
        plain: JsonSchema = {"type": "string"}
        if self.pattern:
            plain["pattern"] = self.pattern
        elif self.filled:
            plain["pattern"] = r"\S"
        return {"anyOf": [plain, TEMPLATE_SCHEMA]} if self.role and self.pattern else plain

    def words(self) -> str:
        """Text, or a template that renders to text."""
        return "text or template" if self.role else "text"


@dataclasses.dataclass(frozen=True, slots=True)
class Name:
    """An identifier: letters, digits, `_` and `-`, at most 128."""

    blank: ClassVar[str] = ""

    def read(self, value: Any, place: Place, reader: Reader) -> str:  # noqa: ANN401 - see Shape
        """Read a name."""
        if not isinstance(value, str):
            reader.wrong_type(place, value, "a name")
            return ""
        if not NAME.fullmatch(value):
            reader.report("DSL015", f"`{value[:80]}` is not a name", place)
        return value

    def schema(self, definitions: Definitions) -> JsonSchema:
        """A string with the name pattern."""
        del definitions
        return {"type": "string", "pattern": NAME_PATTERN}

    def words(self) -> str:
        """A name."""
        return "name"


@dataclasses.dataclass(frozen=True, slots=True)
class Number:
    """A number within bounds; with a `role` it may be a template."""

    least: float | None = None
    most: float | None = None
    whole: bool = False
    role: str = ""
    above: float | None = None
    blank: ClassVar[int] = 0

    def read(self, value: Any, place: Place, reader: Reader) -> float | str:  # noqa: ANN401 - see Shape
        """Read a number; digits in quotes stay text and are refused."""
        if self.role and isinstance(value, str) and reader.text(value, place, self.role):
            return value
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            reader.wrong_type(place, value, "a whole number" if self.whole else "a number")
            return 0
        if self.whole and not isinstance(value, int):
            reader.wrong_type(place, value, "a whole number")
            return 0
        low = self.least is not None and value < self.least
        high = self.most is not None and value > self.most
        if low or high or (self.above is not None and value <= self.above):
            reader.report("DSL039", f"{value} is outside {self._range()}", place)
        return value

    def _range(self) -> str:
        if self.above is not None:
            return f"> {self.above}"
        if self.most is None:
            return f">= {self.least}"
        return f"{'' if self.least is None else self.least}..{self.most}"

    def schema(self, definitions: Definitions) -> JsonSchema:
        """A number with its bounds."""
        del definitions
        plain: JsonSchema = {"type": "integer" if self.whole else "number"}
        bounds = {"minimum": self.least, "maximum": self.most, "exclusiveMinimum": self.above}
        plain |= {name: bound for name, bound in bounds.items() if bound is not None}
        return {"anyOf": [plain, TEMPLATE_SCHEMA]} if self.role else plain

    def words(self) -> str:
        """A number with its range."""
        kind = "whole number" if self.whole else "number"
        bounded = not (self.least is self.most is self.above is None)
        return (
            kind + (f" {self._range()}" if bounded else "") + (" or template" if self.role else "")
        )


def whole(least: int | None = None, most: int | None = None, *, role: str = "") -> Number:
    """A whole number within bounds."""
    return Number(least, most, whole=True, role=role)


@dataclasses.dataclass(frozen=True, slots=True)
class Flag:
    """A boolean; with a `role` it may be a template."""

    role: str = ""
    blank: ClassVar[bool] = False

    def read(self, value: Any, place: Place, reader: Reader) -> bool | str:  # noqa: ANN401 - see Shape
        """Read a boolean; `yes` and `on` are texts in YAML 1.2 and are refused."""
        if isinstance(value, bool):
            return value
        if self.role and isinstance(value, str) and reader.text(value, place, self.role):
            return value
        reader.wrong_type(place, value, "true or false")
        return False

    def schema(self, definitions: Definitions) -> JsonSchema:
        """A boolean."""
        del definitions
        plain: JsonSchema = {"type": "boolean"}
        return {"anyOf": [plain, TEMPLATE_SCHEMA]} if self.role else plain

    def words(self) -> str:
        """True or false."""
        return "true or false" + (" or template" if self.role else "")


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words; with a `role` it may be a template."""

    values: tuple[str, ...]
    role: str = ""

    @property
    def blank(self) -> str:
        """The first word."""
        return self.values[0]

    def read(self, value: Any, place: Place, reader: Reader) -> str:  # noqa: ANN401 - see Shape
        """Read one of the words."""
        if not isinstance(value, str):
            reader.wrong_type(place, value, self.words())
            return self.values[0]
        if value in self.values:
            return value
        if self.role and reader.text(value, place, self.role):
            return value
        message = f"`{value[:80]}` is not allowed here"
        reader.report("DSL039", message, place, hint=lambda: nearest(value, self.values))
        return self.values[0]

    def schema(self, definitions: Definitions) -> JsonSchema:
        """An enumeration."""
        del definitions
        plain: JsonSchema = {"enum": list(self.values)}
        return {"anyOf": [plain, TEMPLATE_SCHEMA]} if self.role else plain

    def words(self) -> str:
        """The words, spelt out."""
        return " | ".join(self.values)


def any_case_pattern(values: Sequence[str]) -> str:
    """A pattern for any of these words, whatever the case of their letters."""

    def letters(word: str) -> str:
        return "".join(
            f"[{char.upper()}{char.lower()}]" if char.isalpha() else re.escape(char)
            for char in word
        )

    return "^(" + "|".join(letters(word) for word in values) + ")$"


def choice(*values: str, role: str = "") -> Choice:
    """One of these words."""
    return Choice(values, role=role)

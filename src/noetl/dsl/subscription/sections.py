"""Shapes of the kinds whose sections report faults under codes of their own, such as Subscription.

Also the small values that such sections share: words in any case, pools, headers, wallet aliases.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from noetl.dsl.shape import (
    Definitions,
    JsonSchema,
    ListOf,
    Model,
    Of,
    Shape,
    any_case_pattern,
    blank_of,
    nearest,
)
from noetl.dsl.yaml import Place

if TYPE_CHECKING:
    from noetl.dsl.shape.reader import Reader

POOL_PATTERN = r"^[a-z0-9][a-z0-9_-]{0,62}$"
HEADER_PATTERN = r"^[A-Za-z0-9!#$%&'*+.^_|~-]{1,128}$"
ALIAS_PATTERN = r"^[A-Za-z_][A-Za-z0-9_./-]{0,127}$"
SYSTEM = "system"
MOST_ALIASES = 4
_POOL = re.compile(POOL_PATTERN[1:-1])
_HEADER = re.compile(HEADER_PATTERN[1:-1])
_ALIAS = re.compile(ALIAS_PATTERN[1:-1])
_ISSUED = re.compile(
    r"(sk-|[spr]k_(live|test)_|gh[opsur]_|github_pat_|glpat-|xox[abeprs]-|whsec_|whpk_|AKIA|ASIA"
    r"|AIza|eyJ|ya29\.).{10,}"
)
_RANDOM = re.compile(r"[0-9a-fA-F]{32,}|(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9])[A-Za-z0-9]{24,}")


class Section(Of):
    """The shape of a model whose faults carry one code."""

    def __init__(self, cls: type[Model], code: str) -> None:
        super().__init__(cls)
        self.code = code

    def read(self, value: Any, place: Place, reader: Reader) -> Any:  # noqa: ANN401 - see Shape
        """Read the model; its general faults are reported under the code."""
        with reader.coded(self.code):
            return super().read(value, place, reader)


@dataclasses.dataclass(frozen=True, slots=True)
class Coded:
    """A shape whose faults carry a code of their own."""

    shape: Shape
    code: str

    @property
    def blank(self) -> Any:  # noqa: ANN401 - see Shape
        """The blank of the shape."""
        return blank_of(self.shape)

    def read(self, value: Any, place: Place, reader: Reader) -> Any:  # noqa: ANN401 - see Shape
        """Read the value; its general faults are reported under the code."""
        with reader.coded(self.code):
            return self.shape.read(value, place, reader)

    def schema(self, definitions: Definitions) -> JsonSchema:
        """The schema of the shape."""
        return self.shape.schema(definitions)

    def words(self) -> str:
        """The words of the shape."""
        return self.shape.words()


@dataclasses.dataclass(frozen=True, slots=True)
class Word:
    """One of a few words in any case; anything else is refused and reads as no word."""

    values: tuple[str, ...]
    blank: ClassVar[str] = ""

    def read(self, value: Any, place: Place, reader: Reader) -> str:  # noqa: ANN401 - see Shape
        """Read the word in lower case."""
        if not isinstance(value, str):
            reader.wrong_type(place, value, self.words())
            return ""
        if value.lower() in self.values:
            return value.lower()
        message = f"`{value[:80]}` is not one of {', '.join(self.values)}"
        reader.report("DSL039", message, place, hint=nearest(value, self.values))
        return ""

    def schema(self, definitions: Definitions) -> JsonSchema:
        """A string that is one of the words."""
        del definitions
        return {"type": "string", "pattern": any_case_pattern(self.values)}

    def words(self) -> str:
        """The words, spelt out."""
        return " | ".join(self.values)


def word(*values: str) -> Word:
    """One of these words, in any case."""
    return Word(values)


@dataclasses.dataclass(frozen=True, slots=True)
class Pool:
    """The name of a worker pool; `system` belongs to the platform."""

    code: str = "pool_invalid"
    reserved: str = "reserved_pool"
    blank: ClassVar[str] = ""

    def read(self, value: Any, place: Place, reader: Reader) -> str:  # noqa: ANN401 - see Shape
        """Read the name of a pool."""
        if not isinstance(value, str):
            with reader.coded(self.code):
                reader.wrong_type(place, value, "text")
            return ""
        if not _POOL.fullmatch(value):
            message = f"`{value[:80]}` is not the name of a pool"
            hint = "use lower-case letters, digits, `_` and `-`; 63 at most"
            reader.report(self.code, message, place, hint=hint)
        elif value == SYSTEM:
            message = "the pool `system` belongs to the platform"
            reader.report(self.reserved, message, place, hint="name a pool of your own")
        return value

    def schema(self, definitions: Definitions) -> JsonSchema:
        """A string with the pattern of pools."""
        del definitions
        return {"type": "string", "pattern": POOL_PATTERN}

    def words(self) -> str:
        """A pool."""
        return "name of a pool"


class Header:
    """The name of a header, read in lower case."""

    blank: ClassVar[str] = ""

    def read(self, value: Any, place: Place, reader: Reader) -> str:  # noqa: ANN401 - see Shape
        """Read the name of a header."""
        if not isinstance(value, str):
            reader.wrong_type(place, value, "text")
            return ""
        if not _HEADER.fullmatch(value):
            reader.report("DSL039", f"`{value[:80]}` is not the name of a header", place)
        return value.lower()

    def schema(self, definitions: Definitions) -> JsonSchema:
        """A string with the pattern of header names."""
        del definitions
        return {"type": "string", "pattern": HEADER_PATTERN}

    def words(self) -> str:
        """A header."""
        return "name of a header"


class Alias:
    """The name of a credential; the secret itself is refused, and never repeated in the message."""

    blank: ClassVar[str] = ""

    def read(self, value: Any, place: Place, reader: Reader) -> str:  # noqa: ANN401 - see Shape
        """Read the name of a credential."""
        if not isinstance(value, str):
            reader.wrong_type(place, value, "text")
            return ""
        if not _ALIAS.fullmatch(value) or looks_secret(value):
            message = f"`{place.key}` must be the name of a credential"
            hint = "register the secret as a Credential and write its name here"
            reader.report("DSL039", message, place, hint=hint)
            return ""
        return value

    def schema(self, definitions: Definitions) -> JsonSchema:
        """A string with the pattern of credential names."""
        del definitions
        return {"type": "string", "pattern": ALIAS_PATTERN}

    def words(self) -> str:
        """A credential."""
        return "name of a credential"


ALIASES = ListOf(Alias(), least=1, most=MOST_ALIASES, lone=True)


def looks_secret(text: str) -> bool:
    """Whether a text looks like a secret in the clear: a known prefix, or random characters."""
    return bool(_ISSUED.fullmatch(text) or _RANDOM.fullmatch(text))


class Tagged:
    """A map whose `type` picks its model."""

    blank: ClassVar[None] = None

    def __init__(
        self,
        models: Mapping[str, type[Model]],
        *,
        refused: Mapping[str, tuple[str, str]] | None = None,
    ) -> None:
        """Take the models by type, and types that are refused with a code and a message."""
        self._models = models
        self._refused = refused or {}
        self._type = word(*models)

    def read(self, value: Any, place: Place, reader: Reader) -> Any:  # noqa: ANN401 - see Shape
        """Read the map with the model of its type."""
        if not isinstance(value, Mapping):
            reader.wrong_type(place, value, "a map with `type`")
            return None
        if "type" not in value:
            hint = f"add `type`: {self._type.words()}"
            reader.report("DSL037", "the key `type` is missing", place, into=True, hint=hint)
            return None
        where = Place(value, "type", place)
        tag = value["type"]
        if isinstance(tag, str) and tag.lower() in self._refused:
            code, message = self._refused[tag.lower()]
            reader.report(code, message, where, hint=nearest("", tuple(self._models)))
            return None
        name = self._type.read(tag, where, reader)
        return Of(self._models[name]).read(value, place, reader) if name else None

    def schema(self, definitions: Definitions) -> JsonSchema:
        """One alternative per type."""
        names = (*self._models, *self._refused)
        return {
            "type": "object",
            "required": ["type"],
            "properties": {"type": {"type": "string", "pattern": any_case_pattern(names)}},
            "allOf": [
                {
                    "if": {"properties": {"type": word(name).schema(definitions)}},
                    "then": Of(cls).schema(definitions),
                }
                for name, cls in self._models.items()
            ],
        }

    def words(self) -> str:
        """A map by type."""
        return f"map with `type`: {self._type.words()}"

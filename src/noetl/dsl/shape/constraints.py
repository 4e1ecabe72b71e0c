"""Conditions between keys of one map, checked by the parser and published in the schema."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from noetl.dsl.shape.base import Fields, JsonSchema, needs
from noetl.dsl.yaml import Place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.dsl.shape.reader import Reader


@dataclasses.dataclass(frozen=True, slots=True)
class ExactlyOne:
    """One, and only one, of these keys."""

    keys: tuple[str, ...]
    code: str = "DSL039"

    def check(self, value: Mapping[str, Any], place: Place, reader: Reader, known: Fields) -> None:
        """Report none, or the second one."""
        found = [name for item in self.keys if (name := known.present(value, item))]
        words = " or ".join(f"`{item}`" for item in self.keys)
        if not found:
            reader.report(self.code, f"one of {words} is needed", place, into=True)
        elif len(found) > 1:
            where = Place(value, found[1], place)
            message = f"only one of {words} is allowed"
            reader.report("DSL039", message, where, on_key=True, hint="keep one of them")

    def schema(self, known: Fields) -> JsonSchema:
        """Exactly one of the keys, in any spelling."""
        return {"oneOf": [needs(known.names(item)) for item in self.keys]}


@dataclasses.dataclass(frozen=True, slots=True)
class NotBoth:
    """These two keys exclude each other."""

    keys: tuple[str, str]
    code: str = "DSL039"

    def check(self, value: Mapping[str, Any], place: Place, reader: Reader, known: Fields) -> None:
        """Report the second of the two."""
        found = [name for item in self.keys if (name := known.present(value, item))]
        if len(found) > 1:
            where = Place(value, found[1], place)
            message = f"`{self.keys[0]}` and `{self.keys[1]}` exclude each other"
            reader.report(self.code, message, where, on_key=True, hint="keep one of them")

    def schema(self, known: Fields) -> JsonSchema:
        """Not both at once."""
        return {"not": {"allOf": [needs(known.names(item)) for item in self.keys]}}


@dataclasses.dataclass(frozen=True, slots=True)
class AtLeastOne:
    """Any of these keys must be present."""

    keys: tuple[str, ...]
    code: str = "DSL051"

    def check(self, value: Mapping[str, Any], place: Place, reader: Reader, known: Fields) -> None:
        """Report when none is present."""
        if not any(known.present(value, item) for item in self.keys):
            words = " or ".join(f"`{item}`" for item in self.keys)
            reader.report(self.code, f"{words} is needed here", place, into=True)

    def schema(self, known: Fields) -> JsonSchema:
        """Any of the keys, in any spelling."""
        return {"anyOf": [needs(known.names(item)) for item in self.keys]}


@dataclasses.dataclass(frozen=True, slots=True)
class Needs:
    """A value of one key makes another key necessary."""

    when: tuple[str, str]
    key: str
    code: str = "DSL037"

    def check(self, value: Mapping[str, Any], place: Place, reader: Reader, known: Fields) -> None:
        """Report the missing key."""
        name, word = self.when
        if value.get(name) == word and known.present(value, self.key) is None:
            message = f"`{name}: {word}` needs `{self.key}`"
            reader.report(self.code, message, place, into=True, hint=f"add `{self.key}`")

    def schema(self, known: Fields) -> JsonSchema:
        """The same as a condition."""
        name, word = self.when
        return {
            "if": {"properties": {name: {"const": word}}, "required": [name]},
            "then": needs(known.names(self.key)),
        }


@dataclasses.dataclass(frozen=True, slots=True)
class AsPublished:
    """A condition that the parser checks elsewhere; here it is only published."""

    condition: str
    published: tuple[tuple[str, Any], ...]

    def check(self, value: Mapping[str, Any], place: Place, reader: Reader, known: Fields) -> None:
        """Nothing: `condition` says where it is checked."""

    def schema(self, known: Fields) -> JsonSchema:
        """The condition as JSON Schema."""
        del known
        return dict(self.published)

"""Models and the shape of a model: a map with known keys."""

from __future__ import annotations

import dataclasses
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, cast, dataclass_transform

from noetl.dsl.yaml import ROOT, Map, Place

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from noetl.dsl.shape.reader import Reader

JsonSchema = dict[str, Any]
_EXTENSION = "x-"
_MERGE = "<<"
_NEAR = 0.6
_MOST_MEANT = 8
_MOST_COMPARED = 300
_MOST_LISTED = 30


class Definitions:
    """The `$defs` of one published schema, filled while shapes describe themselves."""

    def __init__(self) -> None:
        self.defs: dict[str, JsonSchema] = {}

    def refer(self, name: str, make: Callable[[], JsonSchema]) -> JsonSchema:
        """A reference to a named definition, made on first use."""
        if name not in self.defs:
            self.defs[name] = {}
            self.defs[name] = make()
        return {"$ref": f"#/$defs/{name}"}


class Shape(Protocol):
    """How one value is read, described and published."""

    def read(self, value: Any, place: Place, reader: Reader) -> Any:  # noqa: ANN401 - any YAML value
        """Turn a value into its typed form; faults are reported and a blank is returned."""

    def schema(self, definitions: Definitions) -> JsonSchema:
        """The JSON Schema of the authored form."""

    def words(self) -> str:
        """What the value is, in a few words."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """What a model's field knows about its YAML key."""

    shape: Shape
    name: str
    doc: str
    required: bool
    aliases: tuple[str, ...]
    code: str


@dataclasses.dataclass(frozen=True, slots=True)
class OlderKey:
    """A key of an earlier release that is still accepted (normalised) or refused with a hint."""

    shape: Shape
    instead: str


_REQUIRED: Any = dataclasses.MISSING


def key(  # noqa: PLR0913 - the one field specifier; each argument is one fact of the key
    shape: Shape,
    doc: str,
    *,
    name: str = "",
    default: Any = _REQUIRED,  # noqa: ANN401 - the field's own type
    default_factory: Callable[[], Any] | None = None,
    aliases: tuple[str, ...] = (),
    code: str = "DSL037",
) -> Any:  # noqa: ANN401 - a dataclass field stands for a value of any type
    """Declare one key of a model: its shape, its words, and what stands when it is absent."""
    required = default is _REQUIRED and default_factory is None
    made = Key(shape=shape, name=name, doc=doc, required=required, aliases=aliases, code=code)
    if default_factory is not None:
        return dataclasses.field(default_factory=default_factory, metadata={"key": made})
    if required:
        return dataclasses.field(metadata={"key": made})
    return dataclasses.field(default=default, metadata={"key": made})


class Constraint(Protocol):
    """A condition between keys of one map, checked by the parser and published in the schema."""

    def check(self, value: Mapping[str, Any], place: Place, reader: Reader, known: Fields) -> None:
        """Report when the keys that are present break the rule."""

    def schema(self, known: Fields) -> JsonSchema:
        """The same condition as JSON Schema."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Model:
    """A frozen piece of a document; knows where it was written."""

    older: ClassVar[Mapping[str, OlderKey]] = {}
    constraints: ClassVar[tuple[Constraint, ...]] = ()
    keeps_unknown: ClassVar[bool] = False

    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    place: Place = dataclasses.field(default=ROOT, compare=False, repr=False)

    def __eq__(self, other: object) -> bool:
        """Equal when every key is, wherever they were written."""
        if type(other) is not type(self):
            return NotImplemented
        compared = (item.name for item in dataclasses.fields(self) if item.compare)
        return all(getattr(self, name) == getattr(other, name) for name in compared)

    __hash__ = None  # type: ignore[assignment]  # its maps cannot be hashed either

    def __repr__(self) -> str:
        """Every key."""
        shown = (item.name for item in dataclasses.fields(self) if item.repr)
        parts = (f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{type(self).__name__}({', '.join(parts)})"


_Class = TypeVar("_Class", bound=type)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(key,))
def model(cls: _Class) -> _Class:
    """Make a class of `key()` fields a frozen, slotted, keyword-only dataclass."""
    # Comparing and printing are inherited: generating them for every class costs at each start.
    make = dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
    return cast("_Class", make(cls))


class Fields:
    """The keys of one model class, by attribute and by every accepted name."""

    _known: ClassVar[dict[type[Model], Fields]] = {}

    def __init__(self, cls: type[Model]) -> None:
        self.cls = cls
        self.keys: dict[str, Key] = {}
        self.by_name: dict[str, tuple[str, Key]] = {}
        for field in dataclasses.fields(cls):
            known = field.metadata.get("key")
            if known is None:
                continue
            name = known.name or field.name
            self.keys[field.name] = dataclasses.replace(known, name=name)
            for spelling in (name, *known.aliases):
                self.by_name[spelling] = (field.name, self.keys[field.name])
        self.required = tuple((attr, item) for attr, item in self.keys.items() if item.required)

    @classmethod
    def of(cls, model_class: type[Model]) -> Fields:
        """The keys of a model class, worked out once."""
        found = cls._known.get(model_class)
        if found is None:
            found = cls._known[model_class] = cls(model_class)
        return found

    def names(self, name: str) -> tuple[str, ...]:
        """Every spelling of one key."""
        item = self.by_name[name][1]
        return (item.name, *item.aliases)

    def present(self, value: Mapping[str, Any], name: str) -> str | None:
        """The spelling under which a key is present, if it is."""
        return next((spelling for spelling in self.names(name) if spelling in value), None)


def nearest(word: str, known: Sequence[str]) -> str:
    """A `did you mean` hint, or the list when nothing is near."""
    near = known
    if len(known) > _MOST_COMPARED:
        near = [item for item in known if item[:1] == word[:1]][:_MOST_COMPARED]
    close = get_close_matches(word, near, n=1, cutoff=_NEAR)
    if close:
        return f"did you mean `{close[0]}`?"
    if not known:
        return ""
    listed = ", ".join(f"`{item}`" for item in sorted(known)[:_MOST_LISTED])
    return f"known here: {listed}" + (", ..." if len(known) > _MOST_LISTED else "")


class Of:
    """The shape of a model: a map with known keys."""

    def __init__(self, cls: type[Model]) -> None:
        self.cls = cls

    def read(self, value: Any, place: Place, reader: Reader) -> Any:  # noqa: ANN401 - see Shape
        """Read a map into the model."""
        if not isinstance(value, dict):
            reader.wrong_type(place, value, "a map")
            return blank(self.cls)
        known = Fields.of(self.cls)
        given: dict[str, Any] = {"place": place}
        extra: dict[str, Any] = {}
        unknown: list[str] = []
        for name, item in value.items():
            found = known.by_name.get(name)
            if found is None:
                if self._unknown(name, item, Place(value, name, place), reader, extra):
                    unknown.append(name)
                continue
            attr, spec = found
            where = Place(value, name, place)
            if attr in given:
                first = next(other for other in known.names(spec.name) if other in value)
                other = first if first != name else known.names(spec.name)[-1]
                message = f"`{name}` and `{other}` say the same"
                reader.report("DSL039", message, where, on_key=True, hint="keep one of them")
                continue
            if item is None and not spec.required and not _takes_null(spec.shape):
                continue
            given[attr] = spec.shape.read(item, where, reader)
        meant = self._meant(value, unknown) if unknown else value
        for attr, spec in known.required:
            if attr not in given:
                self._missing(spec, meant, place, reader)
                given[attr] = blank_of(spec.shape)
        for rule in self.cls.constraints:
            rule.check(meant, place, reader, known)
        return self.cls(**given, extra=extra)

    def _missing(self, spec: Key, meant: dict[str, Any], place: Place, reader: Reader) -> None:
        if Fields.of(self.cls).present(meant, spec.name) is None:
            hint = f"add `{spec.name}`: {spec.doc}"
            message = f"the key `{spec.name}` is missing"
            reader.report(spec.code, message, place, into=True, hint=hint)

    def _meant(self, value: dict[str, Any], unknown: list[str]) -> dict[str, Any]:
        """The map with misspelt keys counted as present, so that one slip is one finding."""
        names = list(Fields.of(self.cls).by_name)
        few = unknown[:_MOST_MEANT]
        near = (get_close_matches(name, names, n=1, cutoff=_NEAR) for name in few)
        meant = Map()
        meant.update({name: None for close in near for name in close} | value)
        meant.at = value.at if isinstance(value, Map) else {}
        return meant

    def _unknown(
        self,
        name: str,
        item: object,
        where: Place,
        reader: Reader,
        extra: dict[str, Any],
    ) -> bool:
        """Keep a key that is free here, or refuse it; whether it was refused."""
        if self.cls.keeps_unknown or name.startswith(_EXTENSION):
            extra[name] = item
            return False
        if name == _MERGE:
            return True  # the loader has said why
        older = self.cls.older.get(name)
        names = list(Fields.of(self.cls).by_name)
        instead = "" if older is None else f"write {older.instead}"
        reader.report(
            "DSL030",
            f"unknown key `{name[:80]}`",
            where,
            on_key=True,
            hint=instead or (lambda: nearest(name, names)),
        )
        return True

    def schema(self, definitions: Definitions) -> JsonSchema:
        """A reference to the model's definition."""
        return definitions.refer(self.cls.__name__, lambda: self._definition(definitions))

    def _definition(self, definitions: Definitions) -> JsonSchema:
        known = Fields.of(self.cls)
        properties: JsonSchema = {}
        for item in known.keys.values():
            described = _optional(item, item.shape.schema(definitions)) | {"description": item.doc}
            properties[item.name] = described
            for alias in item.aliases:
                properties[alias] = described | {"description": f"Same as `{item.name}`."}
        for name, older in self.cls.older.items():
            properties[name] = older.shape.schema(definitions) | {
                "deprecated": True,
                "description": f"Older form; write {older.instead}.",
            }
        definition: JsonSchema = {
            "type": "object",
            "description": (self.cls.__doc__ or "").split("\n")[0],
            "properties": properties,
        }
        if not self.cls.keeps_unknown:
            definition |= {"patternProperties": {"^x-": True}, "additionalProperties": False}
        conditions = [needs(known.names(item.name)) for _, item in known.required]
        conditions += [_not_both(known.names(name)) for name in _spelt_twice(known)]
        conditions += [rule.schema(known) for rule in self.cls.constraints]
        if conditions:
            definition["allOf"] = conditions
        return definition

    def words(self) -> str:
        """A map, by the name of its model."""
        return f"map ({self.cls.__name__})"


def _takes_null(shape: Shape) -> bool:
    """Whether null is a value of the author's own here, and not an absent key."""
    return bool(getattr(shape, "takes_null", False))


def _optional(item: Key, schema: JsonSchema) -> JsonSchema:
    if item.required or schema == {}:
        return dict(schema)
    return {"anyOf": [schema, {"type": "null"}]}


def needs(names: Sequence[str]) -> JsonSchema:
    """One of the spellings must be present."""
    if len(names) == 1:
        return {"required": [names[0]]}
    return {"anyOf": [{"required": [name]} for name in names]}


def _not_both(names: Sequence[str]) -> JsonSchema:
    pairs = [[one, two] for i, one in enumerate(names) for two in names[i + 1 :]]
    return {"not": {"anyOf": [{"required": pair} for pair in pairs]}}


def _spelt_twice(known: Fields) -> list[str]:
    return [item.name for item in known.keys.values() if item.aliases]


def blank(cls: type[Model]) -> Model:
    """A model that stands for a part that could not be read."""
    known = Fields.of(cls)
    return cls(**{attr: blank_of(item.shape) for attr, item in known.required})


def blank_of(shape: Shape) -> Any:  # noqa: ANN401 - see Shape
    """The value that stands for a part that could not be read."""
    if isinstance(shape, Of):
        return blank(shape.cls)
    return getattr(shape, "blank", None)

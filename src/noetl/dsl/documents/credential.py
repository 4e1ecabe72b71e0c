"""Models of `kind: Credential`: the type of a secret, and its data or where that lies.

Data is kept as it was written and is never a template: a password may hold braces.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from noetl.dsl.documents.credential_types import DOCUMENT, MAP, TYPES
from noetl.dsl.metadata import Metadata
from noetl.dsl.shape import (
    Constraint,
    Definitions,
    ExactlyOne,
    Fields,
    JsonSchema,
    MapOf,
    Model,
    Of,
    Text,
    choice,
    key,
    model,
    nearest,
)
from noetl.dsl.shape.reader import Reader
from noetl.dsl.subscription.sections import Alias
from noetl.dsl.yaml import ROOT, Place, load

if TYPE_CHECKING:
    from noetl.dsl.diagnostics import Diagnostic

PROVIDERS = ("env", "file", "vault", "gcp", "aws", "azure", "k8s")


class Together:
    """The rule that `provider` and `map` are written together."""

    def check(self, value: Mapping[str, Any], place: Place, reader: Reader, known: Fields) -> None:
        """Report the one that lacks."""
        del known
        for name, other in _TOGETHER.items():
            if name in value and other not in value:
                message = f"`{name}` needs `{other}`"
                reader.report("DSL037", message, place, into=True, hint=f"add `{other}`")

    def schema(self, known: Fields) -> JsonSchema:
        """The same as JSON Schema."""
        del known
        return {"dependentRequired": {name: [other] for name, other in _TOGETHER.items()}}


_TOGETHER = {"provider": "map", "map": "provider"}


@model
class CredentialSource(Model):
    """Where the data is read from: one secret with all of it, or a provider and a map of fields."""

    constraints: ClassVar[tuple[Constraint, ...]] = (
        ExactlyOne(("provider", *PROVIDERS)),
        Together(),
    )

    provider: str | None = key(choice(*PROVIDERS), "who keeps the fields", default=None)
    map: Mapping[str, str] | None = key(
        MapOf(Text()), "field to the provider's name of it", default=None
    )
    auth: str | None = key(Alias(), "credential of the provider", default=None)
    region: str | None = key(Text(), "region of the provider", default=None)
    env: str | None = key(Text(), "environment variable of the server", default=None)
    file: str | None = key(Text(), "file of the server", default=None)
    vault: Any = key(DOCUMENT, "secret of Vault", default=None)
    gcp: Any = key(DOCUMENT, "secret of Google Secret Manager", default=None)
    aws: Any = key(DOCUMENT, "secret of AWS Secrets Manager", default=None)
    azure: Any = key(DOCUMENT, "secret of Azure Key Vault", default=None)
    k8s: Any = key(DOCUMENT, "Kubernetes secret", default=None)


@model
class CredentialSpec(Model):
    """The type of a secret, and its data or where that is read from."""

    constraints: ClassVar[tuple[Constraint, ...]] = (ExactlyOne(("data", "from")),)

    type: str = key(choice(*TYPES), "type of the credential")
    data: Mapping[str, Any] | None = key(MAP, "fields of the type", default=None)
    from_: CredentialSource | None = key(
        Of(CredentialSource), "where the data is read from", name="from", default=None
    )

    def __repr__(self) -> str:
        """Show the names of the fields, never a value."""
        return f"CredentialSpec(type={self.type!r}, fields={sorted(self.data or ())!r})"


class SpecShape(Of):
    """The shape of `spec`: `data` holds the fields of `type` and no others."""

    def __init__(self) -> None:
        super().__init__(CredentialSpec)

    def read(self, value: Any, place: Place, reader: Reader) -> Any:  # noqa: ANN401 - see Shape
        """Read the spec, and its data with the model of its type for the faults."""
        spec = super().read(value, place, reader)
        kind = value.get("type") if isinstance(value, Mapping) else None
        if isinstance(kind, str) and kind in TYPES:
            self._fields(TYPES[kind], value, place, reader)
        return spec

    def _fields(
        self, cls: type[Model], value: Mapping[str, Any], place: Place, reader: Reader
    ) -> None:
        """Judge the fields of the data, or of the map that stands for it."""
        if isinstance(value.get("data"), Mapping):
            Of(cls).read(value["data"], Place(value, "data", place), reader)
        source = value.get("from")
        fields = source.get("map") if isinstance(source, Mapping) else None
        if not isinstance(fields, Mapping):
            return
        where = Place(source, "map", Place(value, "from", place))
        known = Fields.of(cls).by_name
        for name in fields:
            if name not in known:
                message = f"unknown field `{name[:80]}`"
                reader.report("DSL030", message, Place(fields, name, where), on_key=True,
                              hint=nearest(name, tuple(known)))  # fmt: skip

    def _definition(self, definitions: Definitions) -> JsonSchema:
        definition = super()._definition(definitions)
        definition["allOf"] += [
            {
                "if": {"properties": {"type": {"const": kind}}, "required": ["type"]},
                "then": {
                    "properties": {
                        "data": Of(cls).schema(definitions),
                        "from": {"properties": {"map": {"propertyNames": _names(cls)}}},
                    }
                },
            }
            for kind, cls in TYPES.items()
        ]
        return definition


def _names(cls: type[Model]) -> JsonSchema:
    return {"enum": sorted(Fields.of(cls).by_name)}


@model
class Credential(Model):
    """A secret that tools and sources use by name."""

    api_version: str = key(
        Text(), "`noetl.io/v1` or `noetl.io/v2`", name="apiVersion", code="DSL023"
    )
    kind: str = key(Text(), "`Credential`", code="DSL021")
    metadata: Metadata = key(Of(Metadata), "name, path, labels")
    spec: CredentialSpec = key(SpecShape(), "type and data")


def spec_faults(spec: Mapping[str, Any]) -> tuple[Diagnostic, ...]:
    """Everything that is wrong with a `spec` that came as data, not as text."""
    document = load("{}")
    SpecShape().read(dict(spec), ROOT, Reader(document))
    return document.findings.sorted()

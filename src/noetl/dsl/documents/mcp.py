"""Models of `kind: Mcp`: an MCP server that tools call by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from noetl.dsl.metadata import Metadata
from noetl.dsl.shape import (
    ByType,
    Constraint,
    Data,
    Fields,
    JsonSchema,
    ListOf,
    Model,
    Of,
    Text,
    choice,
    key,
    model,
)
from noetl.dsl.subscription.sections import Alias
from noetl.dsl.yaml import Place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.dsl.shape.reader import Reader


@model
class McpAuth(Model):
    """How a call proves who it is; the secret stays in the credential."""

    type: str = key(
        choice("bearer", "basic", "api_key", "gcp_adc", "none"), "scheme", default="bearer"
    )
    credential: str | None = key(Alias(), "credential", default=None)
    header: str | None = key(Text(), "header of the key", default=None)
    scopes: tuple[str, ...] = key(ListOf(Text(), lone=True), "scopes", default=())


@model
class McpTool(Model):
    """A tool of the server."""

    name: str = key(Text(), "name of the tool")
    description: str | None = key(Text(), "what it does", default=None)
    input_schema: Mapping[str, Any] | None = key(
        Data(only="map"), "JSON Schema of its arguments", default=None
    )


class Reached:
    """The rule that a `stdio` server has `argv` and any other an `endpoint`."""

    def check(self, value: Mapping[str, Any], place: Place, reader: Reader, known: Fields) -> None:
        """Report the key that lacks, and the one that is not read."""
        del known
        stdio = value.get("transport") == "stdio"
        needed, other = ("argv", "endpoint") if stdio else ("endpoint", "argv")
        if needed not in value:
            hint = f"add `{needed}`"
            reader.report("DSL037", f"the key `{needed}` is missing", place, into=True, hint=hint)
        if other in value:
            message = f"`{other}` is not read with this transport"
            reader.report("DSL039", message, Place(value, other, place), on_key=True)

    def schema(self, known: Fields) -> JsonSchema:
        """The same as a condition."""
        del known
        return {
            "if": {"properties": {"transport": {"const": "stdio"}}, "required": ["transport"]},
            "then": {"required": ["argv"], "not": {"required": ["endpoint"]}},
            "else": {"required": ["endpoint"], "not": {"required": ["argv"]}},
        }


@model
class McpSpec(Model):
    """How the server is reached, and what it offers."""

    constraints: ClassVar[tuple[Constraint, ...]] = (Reached(),)

    endpoint: str | None = key(
        Text(pattern=r"^https?://[^\s{}]+$"), "address of the server", default=None
    )
    transport: str = key(choice("http", "sse", "stdio"), "transport", default="http")
    argv: tuple[str, ...] = key(ListOf(Text(), least=1), "program of a stdio server", default=())
    auth: Any = key(ByType(text=Alias(), map=Of(McpAuth)), "credential, or a map", default=None)
    tools: tuple[Any, ...] | None = key(
        ListOf(ByType(text=Text(), map=Of(McpTool))), "tools that may be called (all)", default=None
    )


@model
class McpServer(Model):
    """An MCP server that tools call by its name."""

    api_version: str = key(
        Text(), "`noetl.io/v1` or `noetl.io/v2`", name="apiVersion", code="DSL023"
    )
    kind: str = key(Text(), "`Mcp`", code="DSL021")
    metadata: Metadata = key(Of(Metadata), "name, path, labels")
    spec: McpSpec = key(Of(McpSpec), "address, transport, auth, tools")

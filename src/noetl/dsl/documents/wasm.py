"""Models of `kind: WasmPlaybook`: a WebAssembly module that runs like a playbook of one step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from noetl.dsl.metadata import Metadata
from noetl.dsl.shape import Definitions, JsonSchema, ListOf, Model, Of, Text, key, model, whole
from noetl.dsl.shape.units import Duration, Size

if TYPE_CHECKING:
    from noetl.dsl.shape.reader import Reader
    from noetl.dsl.yaml import Place

REF = r"^[a-zA-Z0-9_.-]+(/[a-zA-Z0-9_.-]+)*@[1-9][0-9]{0,8}$"
DIGEST = r"^(sha256:)?[0-9a-f]{64}$"
CAPABILITY = (
    r"^(log|event_publish|result_put|object_put|clock|random|credential_get:[A-Za-z0-9_./-]+"
    r"|tool:[a-z0-9_]+|system_call:[^\s{}]+)$"
)
MIB = 1024**2
MOST_MEMORY = 512 * MIB
MOST_FUEL = 10**11
MOST_DEADLINE = 60.0


class Deadline:
    """A duration of at most a minute."""

    blank: ClassVar[None] = None

    def read(self, value: Any, place: Place, reader: Reader) -> float | None:  # noqa: ANN401 - see Shape
        """Read the duration in seconds."""
        amount = Duration().read(value, place, reader)
        if isinstance(amount, str) or amount is None:
            return None
        if amount > MOST_DEADLINE:
            reader.report("DSL039", f"{value} is too long", place, hint="60 seconds at most")
        return amount

    def schema(self, definitions: Definitions) -> JsonSchema:
        """A number of seconds or a text with a unit."""
        forms = Duration().schema(definitions)["anyOf"]
        return {"anyOf": [forms[0] | {"maximum": MOST_DEADLINE}, forms[1]]}

    def words(self) -> str:
        """A duration."""
        return Duration().words() + ", 60 s at most"


@model
class WasmModule(Model):
    """The module: where it is, and which bytes it must have."""

    ref: str = key(Text(pattern=REF), "plug-in, `path@version`")
    digest: str = key(Text(pattern=DIGEST), "SHA-256 of the module")


@model
class WasmLimits(Model):
    """What one call may use."""

    fuel: int = key(whole(1, MOST_FUEL), "instructions", default=10**9)
    memory: int = key(Size(most=MOST_MEMORY), "bytes of memory", default=64 * MIB)
    deadline: float = key(Deadline(), "seconds of wall time", default=10.0)


@model
class WasmSpec(Model):
    """The module, its entry, and what it may do and use."""

    module: WasmModule = key(Of(WasmModule), "the module")
    entry: str = key(Text(pattern=r"^[A-Za-z_][A-Za-z0-9_.$-]{0,127}$"), "function", default="run")
    capabilities: tuple[str, ...] = key(
        ListOf(Text(pattern=CAPABILITY)), "what it may do (nothing)", default=()
    )
    limits: WasmLimits = key(Of(WasmLimits), "what it may use", default_factory=WasmLimits)


@model
class WasmPlaybook(Model):
    """A WebAssembly module that runs like a playbook of one step."""

    api_version: str = key(Text(), "`noetl.io/v2`", name="apiVersion", code="DSL023")
    kind: str = key(Text(), "`WasmPlaybook`", code="DSL021")
    metadata: Metadata = key(Of(Metadata), "name, path, labels")
    spec: WasmSpec = key(Of(WasmSpec), "module, entry, capabilities, limits")

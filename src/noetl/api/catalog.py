"""Documents under a path, each version for ever as it was registered."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from noetl.api.shapes import Found  # noqa: TC001 - msgspec reads the types of the fields


class Register(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A document to keep; `if_version` is the newest version that the caller knows of."""

    content: str
    message: str = ""
    resource_type: str = "Playbook"
    encoding: Literal["text", "base64"] = "text"
    if_version: int | None = None
    activate: bool = True
    """Whether the new version becomes what its path means."""


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """Where the document lies now."""

    path: str
    version: int
    catalog_id: str
    kind: str
    digest: str
    changed: bool
    status: str = "success"
    message: str = ""
    warnings: tuple[Found, ...] = ()


class Resource(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Which document is meant; `catalog_id` wins."""

    catalog_id: str | int | None = None
    path: str | None = None
    version: str | int | None = None


class CatalogQuery(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Which documents a list shows."""

    resource_type: str | None = None
    path_prefix: str | None = None
    q: str | None = None
    include_archived: bool = False
    versions: Literal["latest", "all"] = "latest"
    content: bool = False
    may: Literal["view", "execute", "modify"] | None = None
    """Only those that the caller may do this with."""
    limit: int = 50
    cursor: str | None = None


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a document."""

    catalog_id: str
    path: str
    kind: str
    version: int
    content: str
    digest: str
    created_at: str
    layout: dict[str, Any] | None = None
    payload: dict[str, Any] | None = None
    meta: dict[str, Any] | None = None
    archived_at: str | None = None
    created_by: str = ""
    message: str = ""


class CatalogItem(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a document in a list, its content only when it was asked for."""

    catalog_id: str
    path: str
    kind: str
    version: int
    digest: str
    created_at: str
    content: str | None = None
    layout: dict[str, Any] | None = None
    payload: dict[str, Any] | None = None
    meta: dict[str, Any] | None = None
    archived_at: str | None = None
    created_by: str = ""
    message: str = ""


class CatalogPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of documents."""

    entries: tuple[CatalogItem, ...]
    next_cursor: str | None = None


class Validate(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A document to check and not to keep."""

    content: str
    resource_type: str = "Playbook"
    encoding: Literal["text", "base64"] = "text"


class PlanNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A step of a playbook; a node of a run's graph has the same names and more."""

    id: str
    kind: Literal["step", "end"]
    label: str
    tool: str | None = None
    desc: str | None = None
    loop: dict[str, Any] | None = None
    is_entry: bool = False
    is_final: bool = False


class PlanEdge(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"from_": "from"}
):
    """An arc of a playbook."""

    from_: str
    to: str
    when: str | None = None
    label: str | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The steps and arcs of a playbook; empty for what has none."""

    nodes: tuple[PlanNode, ...] = ()
    edges: tuple[PlanEdge, ...] = ()


class CheckedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What was found in a document."""

    valid: bool
    diagnostics: tuple[Found, ...]
    graph: Plan


class DocumentGraph(msgspec.Struct, frozen=True, kw_only=True):
    """The steps and arcs of one version."""

    path: str
    version: int
    nodes: tuple[PlanNode, ...]
    edges: tuple[PlanEdge, ...]


class VersionItem(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a document, without its content."""

    version: int
    catalog_id: str
    kind: str
    digest: str
    created_at: str
    created_by: str
    message: str
    archived: bool
    archived_at: str | None
    active: bool
    """Whether it is what `latest` means."""
    execution_count: int


class VersionPage(msgspec.Struct, frozen=True, kw_only=True):
    """Versions of a document, newest first."""

    items: tuple[VersionItem, ...]
    next_cursor: str | None = None


class ChangedStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step that is in both versions, and the keys in which it differs."""

    step: str
    keys: tuple[str, ...]


class StepChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the steps."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[ChangedStep, ...] = ()


class ValueChange(
    msgspec.Struct, frozen=True, kw_only=True, rename={"from_": "from"}, omit_defaults=True
):
    """A default of the workload, before and after; a value that is not there is left out."""

    name: str
    change: Literal["added", "removed", "changed"]
    from_: Any = msgspec.UNSET
    to: Any = msgspec.UNSET


class Breaking(msgspec.Struct, frozen=True, kw_only=True):
    """A change that those who use the document may stumble over."""

    code: Literal["kind_changed", "input_removed", "input_required", "input_type", "step_removed"]
    name: str
    message: str


class Difference(msgspec.Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """Two versions of a document side by side."""

    path: str
    from_: int
    to: int
    unified: str
    steps: StepChanges
    workload: tuple[ValueChange, ...]
    breaking: tuple[Breaking, ...]


class Promote(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The version that a path is to mean."""

    version: str | int


class Promoted(msgspec.Struct, frozen=True, kw_only=True):
    """What a path means now, and what it meant before."""

    path: str
    version: int
    catalog_id: str
    previous: int | None
    changed: bool
    status: str = "success"


class Removal(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Versions that are meant: one, or all of a path."""

    path: str
    version: str | int | None = None


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """What became of versions."""

    path: str
    deleted: tuple[int, ...] = ()
    archived: tuple[int, ...] = ()
    restored: tuple[int, ...] = ()
    count: int = 0
    status: str = "success"


class FormField(msgspec.Struct, frozen=True, kw_only=True):
    """One field of a run form."""

    name: str
    kind: Literal["string", "integer", "number", "boolean", "object", "array", "null", "enum"]
    default: Any
    required: bool
    title: str | None
    description: str | None
    secret: bool
    credential_glob: str | None
    options: tuple[Any, ...]
    children: tuple[FormField, ...]


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """The form of a playbook; a document that no longer parses has no fields."""

    path: str
    version: int
    kind: str
    title: str
    description_markdown: str
    exposed_in_ui: bool
    fields: tuple[FormField, ...]
    generated_at: str


class RunTests(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The cases to run; all of them without a name."""

    cases: tuple[str, ...] | None = None
    version: str | int | None = None
    """The version of the playbook that is tested; the one its path means."""


class CaseResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a case came to: each difference is one line of `diff`."""

    name: str
    ok: bool
    suite: str
    """The path of the document that has the case."""
    duration_ms: int = 0
    diff: tuple[str, ...] = ()


class CasesRun(msgspec.Struct, frozen=True, kw_only=True):
    """What tests came to."""

    passed: int
    failed: int
    cases: tuple[CaseResult, ...]


class ToolKind(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A kind of tool; its JSON Schema when it alone was asked for."""

    kind: str
    description: str
    extra: str = ""
    """The extra that its packages come with."""
    schema: dict[str, Any] | None = None
    returns: dict[str, str] = {}
    """Fields of its data, with their meaning."""
    errors: tuple[str, ...] = ()
    """Kinds of its errors."""


class ToolKinds(msgspec.Struct, frozen=True, kw_only=True):
    """The kinds of tools."""

    items: tuple[ToolKind, ...]


class DocumentKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of document, and where its JSON Schema lies."""

    kind: str
    description: str
    url: str


class DocumentKinds(msgspec.Struct, frozen=True, kw_only=True):
    """The kinds of documents."""

    items: tuple[DocumentKind, ...]

"""What is asked for when a run is to start: the wish, its bounds, and what follows from it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from noetl.dsl.documents.credential_types import texts_in
from noetl.dsl.playbook.inputs import input_schema
from noetl.dsl.secret_inputs import without
from noetl.dsl.template import TemplateFailure, render
from noetl.dsl.workload import effective
from noetl.edge.errors import Unacceptable
from noetl.engine.scope import job_of
from noetl.telemetry.redact import Redactor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.dsl.playbook import Playbook
    from noetl.dsl.playbook.document import Concurrency
    from noetl.engine import events as ev
    from noetl.engine.program import Program
    from noetl.server.ingest.posts import Post
    from noetl.store.base import CatalogEntry

MOST_DEPTH: Final = 32
MOST_PRIORITY: Final = 9
MOST_KEY: Final = 512
MOST_WINDOW_S: Final = 2_592_000
DEFAULT_POOL: Final = "shared"
_POOL: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


class ChildDepth(Unacceptable):
    """Runs that start runs, deeper than is allowed."""

    code = "child_depth"


@dataclass(slots=True, kw_only=True)
class Wanted:
    """A run to start, whoever asks for it."""

    path: str | None = None
    catalog_id: str | None = None
    version: str | int | None = None
    payload: dict[str, Any] = field(default_factory=dict)
    workload: dict[str, Any] | None = None
    """Taken as it is, without the defaults of the playbook."""
    added: dict[str, Any] = field(default_factory=dict)
    """Put into the payload by the server itself; inputs that the playbook does not name."""
    secrets_of: str | None = None
    """Whose secret inputs stand for the masks of the payload, or of the workload."""
    places: tuple[tuple[str, ...], ...] = ()
    """Where secrets lie that the playbook does not name as such."""
    secrets: dict[str, Any] = field(default_factory=dict)
    """What was taken out of the workload, by the names of the places."""
    execution_id: str | None = None
    pool: str | None = None
    priority: int = 5
    parent_execution_id: str | None = None
    parent_key: str | None = None
    depth: int = 0
    trace: dict[str, Any] | None = None
    dedup: tuple[str, str, int] | None = None
    """Scope, key and window in seconds."""
    replay: tuple[str, str, int] | None = None
    """A second key of the same kind; a hit of either is a duplicate."""
    is_free: bool = False
    """None of its keys was held a moment ago: the commit finds out whether one is now."""
    is_exact: bool = False
    """Another wish under the same key is refused, not answered with the first one's run."""
    digest: str = ""
    """Of the whole request, when the other fields do not say all that was asked for."""
    queue: str | None = None
    """Runs of this name follow one another, unless the playbook has a rule of its own."""
    labels: Mapping[str, Any] = field(default_factory=dict)
    trigger: dict[str, Any] = field(default_factory=dict)
    rerun_of: str | None = None
    replay_of: str | None = None
    """The delivery that it repeats."""
    forked_from: dict[str, Any] | None = None
    restored: ev.StateRestored | None = None
    created_by: str = ""
    tenant_id: str = "default"
    """Whose run it is to be."""
    is_metered: bool = False
    """It counts against the limits of its tenant."""
    request: dict[str, Any] | None = None
    start_at: str | None = None
    """The run waits for this moment."""
    entry: CatalogEntry | None = None
    """The document, when it was looked up before."""
    subscription: dict[str, Any] | None = None
    """The message that the run is for: `id` and `path` of the subscription, `message_id` ..."""
    told: tuple[tuple[str, dict[str, Any]], ...] = ()
    """What is to be told of the message in the log of the run: names of events, and facts."""
    is_drain: bool = False
    """It is the run of a tick: the document of a subscription runs for nobody else."""
    sender: Sender | None = None
    """Who appends the start, when it is not the ingest itself."""

    @property
    def gives_way(self) -> bool:
        """Whether somebody asks for a run anew, who may be told to come back later."""
        is_anew = self.parent_execution_id is None or self.subscription is not None
        return self.is_metered and is_anew


class Sender(Protocol):
    """Appends posts."""

    async def post(self, post: Post) -> Post:
        """Append one post; its refusal is raised."""


def version_of(version: str | int | None) -> int | None:
    """A version as a number; none for the newest."""
    if version is None or version in {"latest", ""}:
        return None
    if isinstance(version, int) and not isinstance(version, bool) and version > 0:
        return version
    if isinstance(version, str) and version.isascii() and version.isdigit() and int(version) > 0:
        return int(version)
    raise Unacceptable(f"`{version}` is not a version", hint="`latest` or a whole number")


def check(wanted: Wanted) -> None:
    """Refuse a wish whose numbers and names are out of bounds."""
    if wanted.depth > MOST_DEPTH:
        raise ChildDepth(
            f"runs start runs {wanted.depth} deep", code="child_depth", hint=f"at most {MOST_DEPTH}"
        )
    if wanted.pool is not None and not _POOL.fullmatch(wanted.pool):
        raise Unacceptable(f"`{wanted.pool}` is not a pool", code="pool_invalid")
    if not 0 <= wanted.priority <= MOST_PRIORITY:
        raise Unacceptable(f"priority {wanted.priority} is not in 0..{MOST_PRIORITY}")
    for dedup in filter(None, (wanted.dedup, wanted.replay)):
        _, key, window_s = dedup
        if not 1 <= len(key) <= MOST_KEY or not 1 <= window_s <= MOST_WINDOW_S:
            raise Unacceptable(
                "`dedup` is out of bounds",
                hint=f"a key has 1..{MOST_KEY} characters, a window 1..{MOST_WINDOW_S} s",
            )


def of_tenant(tenant_id: str, name: str) -> str:
    """A name that means something within one tenant, told apart from those of the others."""
    return name if tenant_id == "default" else f"@{tenant_id}:{name}"


def dedup_of(wanted: Wanted) -> tuple[str, str, int] | None:
    """Scope, key and window of a wish; an id that the caller has minted is a key, too."""
    if wanted.dedup is None and wanted.execution_id is not None:
        return ("id", wanted.execution_id, MOST_WINDOW_S)
    return wanted.dedup


def keys_of(wanted: Wanted) -> list[tuple[str, str, int]]:
    """Every key of a wish, in one order for all who hold some of them."""
    return sorted(key for key in (dedup_of(wanted), wanted.replay) if key is not None)


def must_be_runnable(entry: CatalogEntry, *, is_drain: bool = False) -> None:
    """Refuse the document of a subscription: only its ticks run it."""
    if entry.kind == "subscription" and not is_drain:
        raise Unacceptable(
            f"{entry.path} is of kind Subscription and cannot be run", code="not_executable"
        )


def digest_of_wish(wanted: Wanted) -> str:
    """What a caller wishes, as a digest; empty when equal keys need not mean equal wishes."""
    if wanted.digest:
        return wanted.digest
    if not wanted.is_exact and wanted.execution_id is None:
        return ""
    wish = (
        wanted.path,
        wanted.catalog_id,
        None if wanted.version is None else str(wanted.version),
        wanted.payload,
        wanted.pool,
        wanted.priority,
        wanted.parent_execution_id,
        dict(wanted.labels),
    )
    return sha256(msgspec.json.encode(wish, order="sorted")).hexdigest()


def workload_of(
    wanted: Wanted, program: Program, about: dict[str, Any]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The workload of a run and what is to be said of it; refused when it does not fit.

    Secret values are checked, and then taken out of it: no template of the server sees them.
    """
    secret = (*program.secret, *(place for place in wanted.places if place not in program.secret))
    if wanted.workload is not None:
        whole = {**wanted.workload, **wanted.added}
        workload, wanted.secrets = without(whole, secret)
        return workload, ()
    playbook, payload, taken = program.playbook, wanted.payload, dict[str, Any]()
    added = wanted.added
    if secret:
        payload, taken = without(payload, secret)
        added, of_added = without(added, secret)
        taken |= of_added
    _check_inputs(wanted, playbook, taken)
    try:
        workload, warnings = effective(playbook, {**payload, **added}, about)
    except TemplateFailure as fault:
        raise Unacceptable(f"`workload`: {fault.message}", code="invalid_input") from None
    if secret:
        workload, defaults = without(workload, secret)
        wanted.secrets = {**defaults, **taken}
    return workload, warnings


def _check_inputs(wanted: Wanted, playbook: Playbook, taken: dict[str, Any]) -> None:
    """Refuse a payload that does not fit the inputs; what is secret is not told."""
    if playbook.inputs:
        from noetl.dsl.conformity import faults  # noqa: PLC0415 - a validator that few starts need

        spec = playbook.executor.spec if playbook.executor else None
        schema = input_schema(playbook.inputs, strict=bool(spec and spec.strict_inputs))
        known = {name: value for name, value in wanted.added.items() if name in playbook.inputs}
        found = faults(schema, {**wanted.payload, **known})
        if found:
            redactor = Redactor(texts_in(taken))
            raise Unacceptable(
                f"the payload does not fit the inputs of {playbook.path}",
                code="invalid_input",
                errors=tuple(redactor.redact_value(dict(item)) for item in found),
            )


def about(execution_id: str, entry: CatalogEntry, pool: str) -> dict[str, Any]:
    """What the defaults of a playbook may say of the run."""
    execution = {
        "id": execution_id,
        "path": entry.path,
        "version": entry.version,
        "catalog_id": entry.catalog_id,
        "pool": pool,
    }
    return {
        "execution": execution,
        "execution_id": execution_id,
        "job": job_of(execution_id),
    }


def pool_of(playbook: Playbook) -> str:
    """The pool that a playbook asks for."""
    spec = playbook.executor.spec if playbook.executor else None
    return (spec.pool if spec else None) or DEFAULT_POOL


def concurrency_of(playbook: Playbook) -> Concurrency | None:
    """How many runs of a playbook may be under way, if it says so."""
    spec = playbook.executor.spec if playbook.executor else None
    return spec.concurrency if spec else None


def rendered_key(rule: Concurrency, start: ev.PlaybookStarted) -> str:
    """The concurrency key of a run."""
    scope = {**start.workload, "workload": start.workload, "execution_id": start.execution_id}
    try:
        return str(render(rule.key_, scope))
    except TemplateFailure as fault:
        raise Unacceptable(f"`concurrency.key`: {fault.message}", code="invalid_input") from None

"""Writers of the catalog: documents are registered, promoted and put away."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

from noetl.api.catalog import Promoted, Registered, Settled
from noetl.clock import rfc3339
from noetl.dsl.documents.credential import Credential
from noetl.dsl.documents.testcase import PlaybookTest
from noetl.dsl.kinds import AGENT, word_of
from noetl.dsl.playbook import Playbook
from noetl.dsl.subscription.document import Subscription
from noetl.edge.errors import Unacceptable, UnknownPath
from noetl.server.access.caller import SYSTEM_POOL
from noetl.server.access.entry import LOCAL, must
from noetl.server.ingest.wanted import version_of
from noetl.server.library.texts import content_of, count, must_be_path, parsed_of
from noetl.server.subscriptions.documents import warnings_of
from noetl.server.wallet.documents import taken
from noetl.store.base import CatalogEntry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from noetl.api.catalog import Promote, Register, Removal
    from noetl.clock import Clock
    from noetl.dsl.parse import Parsed
    from noetl.dsl.plugins import Plugins
    from noetl.dsl.shape import Model
    from noetl.ids import Ids
    from noetl.server.access.entry import Caller
    from noetl.server.library.trials import Trials
    from noetl.server.metrics import ServerMetrics
    from noetl.server.operations.schedules import Timetables
    from noetl.server.subscriptions.desk import SubscriptionDesk
    from noetl.server.wallet.credentials import Credentials
    from noetl.store.base import Store

WRITE = "catalog:write"
DELETE = "catalog:delete"


class Registration:
    """Keeps documents, and decides which version of them a path means."""

    def __init__(  # noqa: PLR0913 - the parts it is made from
        self,
        store: Store,
        trials: Trials,
        timetables: Timetables,
        metrics: ServerMetrics,
        *,
        clock: Clock,
        ids: Ids,
        credentials: Credentials,
        plugins: Callable[[], Awaitable[Plugins]],
        subscriptions: SubscriptionDesk,
    ) -> None:
        self._subscriptions = subscriptions
        self._metrics = metrics
        self._plugins = plugins
        self._catalog = store.catalog
        self._versions = store.versions
        self._trials = trials
        self._timetables = timetables
        self._clock = clock
        self._ids = ids
        self._credentials = credentials

    async def register(self, body: Register, caller: Caller = LOCAL) -> Registered:
        """Keep a document; one that equals the newest version changes nothing."""
        content = content_of(body.content, body.encoding)
        parsed = await parsed_of(content, await self._plugins())
        model: Any = parsed.model
        count(self._metrics, parsed.diagnostics)
        if model is None:
            raise Unacceptable(
                "the document is not valid",
                code=_code_of(parsed),
                errors=tuple(dict(item.as_json()) for item in parsed.errors),
            )
        path = must_be_path(model.metadata.path or model.metadata.name)
        must(caller, WRITE, path)
        _must_be_free(model, caller)
        warnings: tuple[dict[str, Any], ...] = ()
        if isinstance(model, Subscription):
            await self._subscriptions.must_be_free(caller.tenant_id, path, model.spec)
            warnings = tuple(await warnings_of(self._catalog, caller.tenant_id, model.spec))
        if isinstance(model, Credential):
            content = await taken(self._credentials, model, parsed, caller)
        made = CatalogEntry(
            catalog_id=self._ids.new(),
            path=path,
            version=0,
            kind=_word(parsed),
            content=content,
            digest=sha256(content.replace("\r\n", "\n").encode()).hexdigest(),
            created_at=rfc3339(self._clock.now()),
            message=body.message,
            created_by=caller.account,
            tenant_id=caller.tenant_id,
            meta=_meta(parsed),
        )
        if body.activate and isinstance(model, Playbook) and await self._is_new(made):
            await self._trials.must_pass(made.tenant_id, path, content)
        kept = await self._catalog.add(made, activate=body.activate, if_version=body.if_version)
        changed = kept.catalog_id == made.catalog_id
        is_meant = changed and body.activate
        # Also when it was known: its schedules may not be.
        await self._keep_time(caller, path, model if is_meant else None)
        if isinstance(model, Subscription) and is_meant:
            await self._subscriptions.adopt(kept, caller)
        return Registered(
            path=kept.path,
            version=kept.version,
            catalog_id=kept.catalog_id,
            kind=kept.kind,
            digest=kept.digest,
            changed=changed,
            message=f"{kept.path} version {kept.version} is "
            + ("registered" if changed else "unchanged"),
            warnings=(*made.meta.get("warnings", ()), *warnings),
        )

    async def _is_new(self, made: CatalogEntry) -> bool:
        """Whether a document differs from the newest version of its path."""
        newest = await self._versions.page(made.tenant_id, made.path, 1)
        return not (newest and newest[0].digest == made.digest and newest[0].archived_at is None)

    async def promote(self, caller: Caller, path: str, body: Promote) -> Promoted:
        """Make a version what its path means, if its tests let it through."""
        must(caller, WRITE, must_be_path(path))
        tenant_id, version = caller.tenant_id, version_of(body.version)
        if version is None:
            raise Unacceptable("`version` is a number: `latest` is what is to be said")
        before = await self._catalog.resolve(tenant_id, path)
        wanted = await self._catalog.resolve(tenant_id, path, version)
        if wanted is None:
            raise UnknownPath(
                f"the catalog has no {path} version {version}",
                hint="an archived version is restored first",
            )
        changed = before is None or before.catalog_id != wanted.catalog_id
        if changed:
            await self._trials.must_pass(tenant_id, path, wanted.content)
            if not await self._versions.promote(tenant_id, path, version):
                raise UnknownPath(f"the catalog has no {path} version {version} any more")
            await self._keep_time(caller, path)
        return Promoted(
            path=path,
            version=version,
            catalog_id=wanted.catalog_id,
            previous=None if before is None else before.version,
            changed=changed,
        )

    async def archive(self, caller: Caller, body: Removal) -> Settled:
        """Put versions away: they run by their id only."""
        place = self._place(caller, body)
        archived = await self._versions.archive(*place, rfc3339(self._clock.now()))
        await self._keep_time(caller, body.path)
        return Settled(path=body.path, archived=archived, count=len(archived))

    async def restore(self, caller: Caller, body: Removal) -> Settled:
        """Bring versions back."""
        place = self._place(caller, body)
        restored = await self._versions.restore(*place)
        await self._keep_time(caller, body.path)
        return Settled(path=body.path, restored=restored, count=len(restored))

    async def remove(self, caller: Caller, body: Removal) -> Settled:
        """Remove versions that no run was made with, and archive the others."""
        place = self._place(caller, body)
        gone = await self._versions.remove(*place, rfc3339(self._clock.now()))
        await self._keep_time(caller, body.path)
        count = len(gone.deleted) + len(gone.archived)
        return Settled(path=body.path, deleted=gone.deleted, archived=gone.archived, count=count)

    @staticmethod
    def _place(caller: Caller, body: Removal) -> tuple[str, str, int | None]:
        must(caller, DELETE, must_be_path(body.path))
        version = version_of(body.version)
        if body.version is not None and version is None:
            raise Unacceptable("`version` is a number; without it, all versions are meant")
        return caller.tenant_id, body.path, version

    async def _keep_time(self, caller: Caller, path: str, meant: Model | None = None) -> None:
        """The schedules of a path are those of the version that it means."""
        if meant is None:
            entry = await self._catalog.resolve(caller.tenant_id, path)
            meant = None if entry is None else (await parsed_of(entry.content)).model
            if entry is not None and isinstance(meant, Subscription):
                await self._subscriptions.adopt(entry, caller)
        triggers = meant.triggers if isinstance(meant, Playbook) else ()
        await self._timetables.replace(caller.tenant_id, path, triggers, caller.account)


def _code_of(parsed: Parsed) -> str:
    """The code of a refused document: of a Subscription, that of its first fault."""
    found = parsed.errors[0].code if parsed.kind == "Subscription" else ""
    return "invalid_playbook" if not found or found.startswith("DSL") else found


def _must_be_free(model: object, caller: Caller) -> None:
    """Refuse a playbook of others that names the platform's own pool."""
    if not isinstance(model, Playbook) or caller.holds("system:write"):
        return
    spec = model.executor.spec if model.executor else None
    named = [("/executor/spec/pool", spec.pool if spec else None)]
    named += [(f"/triggers/{at}/pool", one.pool) for at, one in enumerate(model.triggers)]
    named += [
        (f"/workflow/{at}/spec/pool", step.spec.pool if step.spec else None)
        for at, step in enumerate(model.workflow)
    ]
    wrong = [pointer for pointer, pool in named if pool == SYSTEM_POOL]
    if wrong:
        raise Unacceptable(
            "the pool `system` is the platform's own",
            code="reserved_pool",
            errors=tuple({"pointer": pointer, "code": "reserved_pool"} for pointer in wrong),
        )


def _word(parsed: Parsed) -> str:
    """The catalog's word for the kind of a document."""
    is_agent = isinstance(parsed.model, Playbook) and parsed.model.metadata.agent
    return AGENT if is_agent else word_of(parsed.kind)


def _meta(parsed: Parsed) -> dict[str, Any]:
    """What lists show and search of a document, and what it tests."""
    model: Any = parsed.model
    about = model.metadata
    found: dict[str, Any] = {
        "name": about.name,
        "description": about.description,
        "labels": {name: str(value) for name, value in about.labels.items()},
        "tags": list(about.tags),
        "owner": about.owner,
        "warnings": tuple(dict(item.as_json()) for item in parsed.warnings),
    }
    if isinstance(model, PlaybookTest):
        found |= {"tests": model.spec.playbook, "gate": model.spec.gate}
    return {name: value for name, value in found.items() if value}

"""The audit: what routes did, by whom, to what, and who was refused.

One task at a time writes the entries of a process, all that wait in one transaction. Equal refusals
of one minute are one row with a count, so that whoever tries a door a thousand times does not fill
the audit.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.clock import rfc3339
from noetl.errors import NoetlError
from noetl.server.access.caller import NOBODY, caller_or_nobody
from noetl.server.signals import sleep_until
from noetl.store.audit import AuditEntry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

    from noetl.clock import Clock
    from noetl.ids import Ids
    from noetl.server.access.caller import Caller
    from noetl.server.metrics import ServerMetrics
    from noetl.store.audit import Audit

WINDOW_S: Final = 60.0
"""How long equal refusals are one row."""
MOST_REFUSALS: Final = 1_000
"""Different refusals of one window; those beyond are one row together."""
MOST_WAITING: Final = 10_000
MOST_AT_ONCE: Final = 500
MOST_TEXT: Final = 500
MOST_DETAILS: Final = 4_096
AGAIN_S: Final = 0.2
END_S: Final = 5.0
_REST_S: Final = 3_600.0
_REFUSED: Final = "access.refused"
_OF_SECRETS: Final = "secret."
_KEY: Final = "noetl.audit"
_WHO: Final = "noetl.audit.who"
_AS: Final = "noetl.audit.as"
_BEGUN: Final = "noetl.audit.begun"
_encode: Final = msgspec.json.Encoder(enc_hook=str).encode
_log: Final = logging.getLogger(__name__)


def audited(request: Request, resource: str, **details: object) -> None:
    """Name what a request was done to, and what is worth keeping of it; never a secret."""
    request.scope[_KEY] = (resource, details)


def audited_as(request: Request, action: str) -> None:
    """Keep a request under another action than its route has declared."""
    request.scope[_AS] = action


def audited_for(request: Request, *, actor: str = "", tenant: str = "", address: str = "") -> None:
    """Say who has done it, and from where, when a process of the platform asks for somebody."""
    request.scope[_WHO] = (actor, tenant, address)


@dataclass(slots=True)
class _Refusals:
    """Refusals that are alike, as one row to come."""

    entry: AuditEntry
    since: float
    count: int = 1


class Audits:
    """Writes the audit."""

    def __init__(self, store: Audit, clock: Clock, ids: Ids, metrics: ServerMetrics) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._metrics = metrics
        self._waiting: list[tuple[AuditEntry, asyncio.Future[None] | None]] = []
        self._refusals: dict[tuple[str, ...], _Refusals] = {}
        self._wake = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None

    # ---------------------------------------------------------------------- told

    def does(self, request: Request, action: str) -> None:
        """A route does something for certain: that is written while the answer is being made."""
        request.scope[_BEGUN] = self.keep(self._of(request, action, "ok"))

    async def did(self, request: Request, action: str) -> None:
        """A route has done something; comes back when that is written."""
        begun = request.scope.pop(_BEGUN, None)
        await (self.keep(self._of(request, action, "ok")) if begun is None else begun)

    def failed(self, request: Request, error: Exception, action: str | None, route: str) -> None:
        """A route has refused or failed to do something; nobody waits for this to be written."""
        code = error.code if isinstance(error, NoetlError) else "internal"
        if isinstance(error, NoetlError) and error.status in {401, 403}:
            self._refused(self._of(request, action or _REFUSED, code, route))
        elif action is not None:
            self._soon(self._of(request, action, code))

    def noted(self, caller: Caller, action: str, resource: str, outcome: str = "ok") -> None:
        """Something was done or refused below the routes; nobody waits for this to be written."""
        entry = self._made(caller, action, outcome, resource)
        if outcome == "ok":
            self._soon(entry)
        else:
            self._refused(entry)

    def keep(self, entry: AuditEntry) -> asyncio.Future[None]:
        """Begin to write an entry; what comes back ends when it is written, or cannot be."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self._queued(entry, done):
            done.set_result(None)
        return done

    # -------------------------------------------------------------------- written

    async def run(self) -> None:
        """Write refusals whose minute has passed, and in the end all, until the server stops."""
        try:
            while True:
                self._close_windows(is_last=False)
                await sleep_until(self._wake, self._rest())
        finally:
            try:
                async with asyncio.timeout(END_S):
                    await self.settle()
            except TimeoutError:
                left = {"entries": len(self._waiting)}
                _log.error("the audit was not written in time", extra=left)

    async def settle(self) -> None:
        """Write what is held back, so that a reader misses nothing that this server knows."""
        self._close_windows(is_last=True)
        if self._writing is not None:
            await asyncio.wait([self._writing])

    async def _write(self) -> None:
        """Write what waits, and what comes meanwhile."""
        try:
            while self._waiting:
                taken, self._waiting = self._waiting[:MOST_AT_ONCE], self._waiting[MOST_AT_ONCE:]
                try:
                    await self._written([entry for entry, _ in taken])
                finally:
                    for _, done in taken:
                        if done is not None and not done.done():
                            done.set_result(None)
        finally:
            self._writing = None

    async def _written(self, entries: list[AuditEntry]) -> None:
        """Write entries; what cannot be written is told in the log, and counted."""
        try:
            try:
                await self._store.append(entries)
            except NoetlError as fault:
                if not fault.retryable:
                    raise
                await asyncio.sleep(AGAIN_S)
                await self._store.append(entries)
        except asyncio.CancelledError:
            self._lost(entries)
            raise
        except Exception:  # noqa: BLE001 - an answer does not fail because its note was not kept
            self._lost(entries)
        else:
            self._metrics.audit_writes.inc("ok", by=len(entries))
            of_secrets = sum(entry.action.startswith(_OF_SECRETS) for entry in entries)
            self._metrics.secret_audit_writes.inc(by=of_secrets)

    def _lost(self, entries: list[AuditEntry]) -> None:
        self._metrics.audit_writes.inc("failed", by=len(entries))
        _log.exception("the audit was not written", extra={"entries": len(entries)})

    def _rest(self) -> float:
        if not self._refusals:
            return _REST_S
        oldest = next(iter(self._refusals.values()))
        return max(0.0, oldest.since + WINDOW_S - self._clock.monotonic())

    def _close_windows(self, *, is_last: bool) -> None:
        """Queue the refusals whose minute has passed; they stand in the order of their first."""
        now = self._clock.monotonic()
        for key, held in list(self._refusals.items()):
            if not is_last and now < held.since + WINDOW_S:
                break
            del self._refusals[key]
            details = {**held.entry.details, "count": held.count}
            self._queued(msgspec.structs.replace(held.entry, details=details), None)

    # --------------------------------------------------------------------- queued

    def _soon(self, entry: AuditEntry) -> None:
        self._queued(entry, None)

    def _queued(self, entry: AuditEntry, done: asyncio.Future[None] | None) -> bool:
        if len(self._waiting) >= MOST_WAITING:
            self._metrics.audit_writes.inc("dropped")
            _log.error("the audit cannot keep up", extra={"waiting": len(self._waiting)})
            return False
        self._waiting.append((entry, done))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name="audit")
        return True

    def _refused(self, entry: AuditEntry) -> None:
        key = (
            entry.tenant_id, entry.actor, entry.action, entry.resource, entry.outcome,
            entry.source_ip,
        )  # fmt: skip
        held = self._refusals.get(key)
        if held is None and len(self._refusals) >= MOST_REFUSALS:
            entry = msgspec.structs.replace(entry, actor="", resource="", source_ip="", details={})
            key = (entry.tenant_id, "", entry.action, "", entry.outcome, "")
            held = self._refusals.get(key)
        if held is not None:
            held.count += 1
            return
        self._refusals[key] = _Refusals(entry, self._clock.monotonic())
        self._wake.set()

    def _of(self, request: Request, action: str, outcome: str, route: str = "") -> AuditEntry:
        resource, details = request.scope.get(_KEY, ("", {}))
        action = request.scope.get(_AS, action)
        caller = caller_or_nobody(request)
        made = self._made(caller, action, outcome, resource or route)
        actor, tenant, told = request.scope.get(_WHO, ("", "", ""))
        peer = request.client.host if request.client else ""
        return msgspec.structs.replace(
            made,
            actor=actor or made.actor,
            tenant_id=tenant or made.tenant_id,
            source_ip=(told or caller.address or peer)[:MOST_TEXT],
            details=_plain(details),
        )

    def _made(self, caller: Caller, action: str, outcome: str, resource: str) -> AuditEntry:
        return AuditEntry(
            audit_id=self._ids.new(),
            at=rfc3339(self._clock.now()),
            actor="" if caller is NOBODY else caller.account,
            action=action,
            resource=resource[:MOST_TEXT],
            outcome=outcome,
            tenant_id=caller.tenant_id,
        )


def _plain(details: Mapping[str, object]) -> dict[str, Any]:
    """Details as JSON of a bounded size."""
    cut = {
        name: value[:MOST_TEXT] if isinstance(value, str) else value
        for name, value in details.items()
        if value is not None
    }
    text = _encode(cut)
    if len(text) > MOST_DETAILS:
        return {"cut": True, "bytes": len(text)}
    made: dict[str, Any] = msgspec.json.decode(text)
    return made

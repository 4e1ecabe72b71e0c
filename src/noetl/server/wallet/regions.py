"""How a worker of another region gets a credential of this one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.edge.errors import Forbidden
from noetl.secrets.sealed import about_delivery, is_public_key
from noetl.server.wallet.credentials import missing
from noetl.server.wallet.errors import ResidencyDenied, WorkerKeyMissing, must_reside
from noetl.server.wallet.keychain.opened import regions_of

if TYPE_CHECKING:
    from noetl.api.credentials import CrossRegion, SealedAnswer
    from noetl.server.access.caller import Caller
    from noetl.server.fleet.workers import Workers
    from noetl.server.wallet.keychain.opened import Opened
    from noetl.server.wallet.runs import Runs
    from noetl.server.wallet.sealing import Sealing


class Regions:
    """Seals credentials of this region for workers of others.

    Whom we trust: the route is open to the platform's own servers, by their token. The server that
    asks has its own store of runs and workers, so it vouches for three things that cannot be
    looked up here: that the key is the one which that worker registered, that the worker holds a
    live claim in that run, and in which region it is. What this server knows itself it does not
    take on trust: a worker that is known here must have that very key, and a run that is known
    here must be of that tenant and name the credential. The answer opens with that key for that
    worker, run and name alone, so the asking server cannot read it on the way.

    A strict credential is refused elsewhere. No setting names the servers of other regions, so
    this server forwards no request: who is refused asks the server of the home region himself.
    """

    def __init__(
        self, opened: Opened, runs: Runs, workers: Workers, sealing: Sealing, *, region: str
    ) -> None:
        self._opened = opened
        self._runs = runs
        self._workers = workers
        self._sealing = sealing
        self._region = region

    async def sealed(self, caller: Caller, body: CrossRegion, execution_id: str) -> SealedAnswer:
        """A credential for a worker elsewhere, as a worker here would get it."""
        with self._sealing.counted():
            return await self._sealed(caller, body, execution_id)

    async def _sealed(self, caller: Caller, body: CrossRegion, execution_id: str) -> SealedAnswer:
        if not is_public_key(body.public_key):
            raise WorkerKeyMissing(
                "`public_key` is not the key of a worker", hint="32 bytes in base64"
            )
        if caller.is_bound and caller.tenant_id != body.tenant_id:
            raise missing(body.name)
        await self._must_fit(body, execution_id)
        row = await self._opened.row(body.tenant_id, body.name)
        if row.region != self._region:
            raise ResidencyDenied(
                f"the credential `{row.name}` is at home in {row.region!r}, not here",
                hint="ask the server of that region",
            )
        must_reside(
            f"the credential `{row.name}`",
            str(row.meta.get("residency", "none")),
            regions_of(row),
            body.region,
        )
        given = await self._opened.given(row)
        value = {"type": given.type, "data": given.data}
        about = about_delivery(body.worker_id, execution_id, body.name)
        return self._sealing.seal(body.public_key, value, about, given.until)

    async def _must_fit(self, body: CrossRegion, execution_id: str) -> None:
        """Refuse what this server knows better."""
        if await self._workers.key_of(body.worker_id) not in {None, body.public_key}:
            raise Forbidden(f"the worker {body.worker_id[:80]!r} has another key")
        run = await self._runs.known(execution_id)
        if run is not None and (
            run.tenant_id != body.tenant_id or body.name not in run.aliases
        ):  # fmt: skip
            raise Forbidden(f"that run does not name the credential `{body.name[:80]}`")

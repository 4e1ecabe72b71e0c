"""Secrets for a run: credentials as they are, keychain entries made when they are first needed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from noetl.api.credentials import VARIABLES
from noetl.dsl.secret_inputs import with_secrets
from noetl.edge.errors import NotFound
from noetl.server.wallet.errors import must_reside
from noetl.server.wallet.keychain.entries import is_fetched, is_variable, names_of
from noetl.server.wallet.keychain.kept import Keeping, Made, refresh_token_of
from noetl.server.wallet.keychain.opened import without_refresh
from noetl.server.wallet.keychain.posted import digest_of, must_name, renewal_of
from noetl.server.wallet.keychain.rendering import entries_before, filled, reads, ttl_of, written
from noetl.server.wallet.keychain.values import POSTED, Spot, Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.api.credentials import Scope
    from noetl.clock import Clock
    from noetl.dsl.playbook.document import KeychainEntry
    from noetl.server.wallet.inputs import RunSecrets
    from noetl.server.wallet.keychain.entries import Entries
    from noetl.server.wallet.keychain.kept import Kept, Make
    from noetl.server.wallet.keychain.opened import Opened
    from noetl.server.wallet.keychain.values import Keychain
    from noetl.server.wallet.runs import RunFacts, Runs
    from noetl.store.secrets import CredentialRow, KeychainRow

    Found = tuple[dict[str, Any], str | None]

_SCOPES: Final[Mapping[str, Scope]] = {
    "execution": "local", "catalog": "shared", "all": "global",
    "local": "local", "shared": "shared", "global": "global",
}  # fmt: skip
_TOKENS: Final = frozenset({"oauth2", "bearer"})
"""Kinds whose values may hold what asks for the next one."""


class Resolution:
    """Finds what a run may have: type and fields, and when they end."""

    def __init__(  # noqa: PLR0913 - the parts it is made from
        self,
        runs: Runs,
        opened: Opened,
        entries: Entries,
        keychain: Keychain,
        kept: Kept,
        *,
        inputs: RunSecrets,
        clock: Clock,
        region: str,
    ) -> None:
        self._runs = runs
        self._opened = opened
        self._entries = entries
        self._keychain = keychain
        self._kept = kept
        self._inputs = inputs
        self._clock = clock
        self._region = region

    async def credential(self, tenant_id: str, name: str) -> Found:
        """A credential; of a client of an OAuth 2 server, its token."""
        return _found(await self._opened.given(await self._opened.row(tenant_id, name)))

    async def opened(self, name: str, row: CredentialRow | None) -> Found:
        """The same of a row that was looked for."""
        return _found(await self._opened.given(self._opened.usable(name, row)))

    async def kept(self, run: RunFacts, name: str) -> Found:
        """A value that was put for this run alone, whatever the playbook calls it."""
        spot = Spot(
            catalog_id=run.catalog_id, name=name, scope="local", execution_id=run.execution_id
        )
        row = await self._keychain.at(spot)
        value = await self._put(run, spot, row)
        if value.data:
            return _found(value)
        return _found(await self._handle(run, spot, row))

    async def _put(self, run: RunFacts, spot: Spot, row: KeychainRow | None) -> Value:
        """A value that somebody put, made anew if he said how."""
        entry = renewal_of(row)
        if row is None or entry is None or not row.auto_renew:
            return await self._kept.get(run.tenant_id, spot, _nothing(run, spot.name))
        keeping = Keeping(ttl_s=ttl_of(entry), renews=row.renew_config, cache_type=POSTED)
        return await self._kept.get(run.tenant_id, spot, self._making(run, entry), keeping)

    async def _handle(self, run: RunFacts, spot: Spot, row: KeychainRow | None) -> Value:
        """The secret that a task of the run gave a name to; it is read when it is first used."""
        entry = renewal_of(row)
        if entry is None:
            raise no_entry(run, spot.name)
        must_name(run, entry)
        # No entry has such a name; what is named otherwise is another value.
        own = replace(spot, name=f"{spot.name}/{digest_of(entry)}")
        return await self._kept.get(run.tenant_id, own, self._making(run, entry))

    def _making(self, run: RunFacts, entry: Mapping[str, Any]) -> Make:
        async def make(before: Value | None) -> Made:
            must_name(run, entry)
            return await self._entries.make(run.tenant_id, entry, refresh_token_of(before))

        return make

    async def renew_put(
        self, tenant_id: str, run: RunFacts | None, row: KeychainRow, early_s: float
    ) -> None:
        """Make a value anew that somebody put and said how, ahead of its end."""
        entry = renewal_of(row)
        if entry is None:
            return

        async def make(before: Value | None) -> Made:
            if run is not None:  # one for all runs was put by somebody who may use any credential
                must_name(run, entry)
            return await self._entries.make(tenant_id, entry, refresh_token_of(before))

        keeping = Keeping(ttl_s=ttl_of(entry), renews=row.renew_config, cache_type=POSTED)
        await self._kept.renewed(tenant_id, spot_at(row), make, keeping, early_s)

    async def entry(self, run: RunFacts, name: str) -> Found:
        """The value of a keychain entry of the run's playbook."""
        entry = run.named.keychain[name]
        if is_variable(written(entry)):
            return await self._variables(run, entry), None
        found = await self._value(run, entry)
        return _found(without_refresh(found) if entry.kind in _TOKENS else found)

    async def renew(self, run: RunFacts, name: str, spot: Spot, early_s: float) -> None:
        """Make the value of an entry anew, ahead of its end."""
        entry = run.named.keychain[name]

        async def make(before: Value | None) -> Made:
            return await self._made(run, entry, before)

        await self._kept.renewed(run.tenant_id, spot, make, _keeping(run, entry), early_s)

    async def _value(self, run: RunFacts, entry: KeychainEntry, *, stays: bool = False) -> Value:
        """The value of an entry; one that stays here is what another one is asked for with."""
        self._must_reside(entry)
        spot = spot_of(run, entry)
        if entry.kind == "static" and not entry.map and not entry.credential:
            return await self._put(run, spot, await self._keychain.at(spot))
        if not is_fetched(written(entry)):
            made = await self._made(run, entry, None, stays=stays)
            return Value(type=made.type, data=dict(made.fields), until=made.until)

        async def make(before: Value | None) -> Made:
            return await self._made(run, entry, before)

        return await self._kept.get(run.tenant_id, spot, make, _keeping(run, entry))

    async def _made(
        self, run: RunFacts, entry: KeychainEntry, before: Value | None, *, stays: bool = False
    ) -> Made:
        """The value of an entry, made from its templates and from the entries before it.

        What it is asked for with goes to whom it is asked from, and not to a worker.
        """
        before_it = refresh_token_of(before)
        wanted = await self._wanted(run, entry, stays=stays)
        return await self._entries.make(run.tenant_id, wanted, before_it, stays=stays)

    async def _variables(self, run: RunFacts, entry: KeychainEntry) -> dict[str, Any]:
        """The names of the variables that the worker reads, by field; their values are not here."""
        self._must_reside(entry)
        names = names_of(await self._wanted(run, entry, stays=False))
        return {"type": "secret", "data": {}, VARIABLES: names}

    def _must_reside(self, entry: KeychainEntry) -> None:
        must_reside(
            f"the entry `{entry.name}`", entry.residency, entry.allowed_regions, self._region
        )

    async def _wanted(
        self, run: RunFacts, entry: KeychainEntry, *, stays: bool
    ) -> Mapping[str, Any]:
        """An entry with its templates filled in."""
        wanted = written(entry)
        named, builds = reads(wanted), stays or is_fetched(wanted)
        if named:
            earlier = {
                name: (await self._value(run, run.named.keychain[name], stays=builds)).data
                for name in entries_before(run, entry.name, named)
            }
            row = await self._runs.row(run.execution_id)
            secrets = await self._inputs.of(run.tenant_id, run.execution_id)
            wanted = filled(wanted, row, with_secrets(row.workload, secrets), earlier)
        return wanted


def spot_of(run: RunFacts, entry: KeychainEntry) -> Spot:
    """Where the value of an entry is kept for a run."""
    scope = _SCOPES[entry.scope]
    owners = {"local": run.execution_id, "shared": run.root_execution_id}
    return Spot(
        catalog_id=run.catalog_id,
        name=entry.name,
        scope=scope,
        execution_id=owners.get(scope),
    )


def spot_at(row: KeychainRow) -> Spot:
    """The place of a row."""
    return Spot(
        catalog_id=row.catalog_id,
        name=row.keychain_name,
        scope=_SCOPES[row.scope_type],
        execution_id=row.execution_id,
    )


def _keeping(run: RunFacts, entry: KeychainEntry) -> Keeping:
    """How the value of an entry is kept; it is renewed with the workload of a run."""
    renews = {"execution_id": run.execution_id} if entry.auto_renew else None
    return Keeping(ttl_s=ttl_of(written(entry)), renews=renews)


def _nothing(run: RunFacts, name: str) -> Any:  # noqa: ANN401 - a function that makes no value
    async def make(before: Value | None) -> Made:
        del before
        raise no_entry(run, name)

    return make


def no_entry(run: RunFacts, name: str) -> NotFound:
    """What is said of an entry that has no value."""
    return NotFound(
        f"{run.path} has no value of `keychain.{name[:80]}`",
        hint="declare the entry in `keychain`, or put its value",
    )


def _found(value: Value) -> Found:
    return {"type": value.type, "data": value.data}, value.until

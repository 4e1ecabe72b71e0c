"""Credentials as they were a moment ago, for commands that need the same one again and again.

What this server changes it forgets at once; what another one changes is known here after a second.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from noetl.clock import Clock
    from noetl.store.secrets import CredentialRow, Credentials

KEPT_S: Final = 1.0
MOST: Final = 1_000


class Lately:
    """Rows that were read in the last second; they are as sealed as in the store."""

    def __init__(self, store: Credentials, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._kept: OrderedDict[tuple[str, str], tuple[CredentialRow, float]] = OrderedDict()
        self._changes = 0

    async def get(self, tenant_id: str, name: str) -> CredentialRow | None:
        """The row of a credential; one that is not there is looked for every time."""
        key, kept = (tenant_id, name), self._kept
        found = kept.get(key)
        if found is not None and self._clock.monotonic() - found[1] < KEPT_S:
            return found[0]
        changes, since = self._changes, self._clock.monotonic()
        row = await self._store.get(tenant_id, name)
        if changes == self._changes:  # else it may be of before the change
            kept.pop(key, None)
            if row is not None:
                kept[key] = (row, since)
            if len(kept) > MOST:
                kept.popitem(last=False)
        return row

    def forget(self, tenant_id: str, name: str) -> None:
        """A credential was changed here."""
        self._changes += 1
        self._kept.pop((tenant_id, name), None)

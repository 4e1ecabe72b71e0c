"""Where sealed secrets lie: credentials, values of the keychain, secret inputs of runs.

The store sees records, never what is in them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SecretTable = Literal["credential", "keychain", "execution_secret"]
SECRET_TABLES: Final[tuple[SecretTable, ...]] = ("credential", "keychain", "execution_secret")


class CredentialRow(msgspec.Struct, frozen=True, kw_only=True):
    """A credential; tenant and name are a key beside the id."""

    id: str
    tenant_id: str
    name: str
    type: str
    data_encrypted: str
    meta: dict[str, Any] = {}
    tags: tuple[str, ...] = ()
    description: str = ""
    region: str = ""
    created_at: str = ""
    updated_at: str = ""


class CredentialListing(msgspec.Struct, frozen=True, kw_only=True):
    """Which credentials are to be listed."""

    limit: int
    after: str | None = None
    """Those behind a name."""
    type: str | None = None
    q: str | None = None
    """A part of the name or of the description, whatever the case."""


class Credentials(Protocol):
    """Credentials of tenants."""

    async def put(self, row: CredentialRow) -> CredentialRow | None:
        """Keep a credential under its id; none when its name is that of another id.

        What was kept tells when it was first made.
        """

    async def get(self, tenant_id: str, name: str) -> CredentialRow | None:
        """The credential of a name."""

    async def by_id(self, tenant_id: str, credential_id: str) -> CredentialRow | None:
        """The credential of an id."""

    async def listed(self, tenant_id: str, listing: CredentialListing) -> list[CredentialRow]:
        """Credentials by name; their records are left out."""

    async def delete(self, tenant_id: str, credential_id: str) -> bool:
        """Forget a credential; false when it is not there."""


class KeychainRow(msgspec.Struct, frozen=True, kw_only=True):
    """A kept value of a keychain entry; `cache_key` is its key."""

    id: str
    cache_key: str
    keychain_name: str
    catalog_id: str
    data_encrypted: str
    credential_type: str = ""
    cache_type: str = "token"
    """`token`: resolved by the server; `secret`: put by somebody."""
    scope_type: str = "global"
    execution_id: str | None = None
    expires_at: str | None = None
    auto_renew: bool = False
    renew_config: dict[str, Any] | None = None
    created_at: str = ""
    accessed_at: str | None = None
    access_count: int = 0


class Keychain(Protocol):
    """Kept values of keychain entries."""

    async def put(self, row: KeychainRow) -> KeychainRow:
        """Keep a value under its key; one that is known keeps its id and its counts."""

    async def get(self, cache_key: str) -> KeychainRow | None:
        """A value, also one whose time has passed; no read is counted."""

    async def touch(self, reads: Mapping[str, int], now: str) -> None:
        """Count reads by key."""

    async def listed(
        self, catalog_id: str, *, after: str = "", limit: int = 100
    ) -> list[KeychainRow]:
        """Values of one document by key, those behind a key; their records are left out."""

    async def expiring(
        self, before: str, *, after: str = "", limit: int = 100, renews: bool = False
    ) -> list[KeychainRow]:
        """Values that end before a moment and after another, the next one first.

        Only those that renew, if asked; their records are left out.
        """

    async def delete(self, cache_key: str) -> bool:
        """Forget a value; false when it is not there."""


class Turns(Protocol):
    """Whose turn it is to make a kept value anew: one of all servers, for a short while.

    Nothing is held open meanwhile, and the turn of a server that dies ends by itself.
    """

    async def take(self, cache_key: str, holder: str, *, now: str, until: str) -> bool:
        """Take the turn of a key until a moment; false as long as it is another's."""

    async def leave(self, cache_key: str, holder: str) -> None:
        """Give a turn back; one that was lost meanwhile is left to its new holder."""


class ExecutionSecrets(Protocol):
    """Sealed values of secret inputs; they go with their run.

    A record opens in its own row alone: whoever takes values over seals them anew
    (`noetl.server.wallet.inputs`).
    """

    async def put(self, execution_id: str, records: Mapping[str, str]) -> None:
        """Keep records under their names; a name that is known gets the new one."""

    async def get(self, execution_id: str) -> dict[str, str]:
        """Every record of a run by its name."""


class SealedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record, wherever it lies."""

    key: str
    """The id of a credential, the key of a keychain value, `<execution>/<name>` of an input."""
    record: str


class Records(Protocol):
    """All sealed records of a table, for the rotation of the key that wraps them."""

    async def page(
        self, table: SecretTable, *, after: str | None = None, limit: int = 100
    ) -> list[SealedRecord]:
        """Records in a fixed order, those behind a key."""

    async def swap(
        self, table: SecretTable, changes: Sequence[tuple[SealedRecord, str]]
    ) -> list[str]:
        """Replace records by others, where they are still the same; the keys of those that were."""

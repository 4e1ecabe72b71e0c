"""Credentials, the keychain, and what is asked of the wallet that keeps both."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

SealedKind = Literal["credential", "keychain", "inputs", "subscription"]
"""What is wanted: a stored credential, an entry of the playbook's keychain, secret inputs; or, by
a process that listens, a credential that its subscription names."""
INPUTS = "inputs"
"""The name under which the secret inputs of a run are delivered."""
VARIABLES = "variables"
"""The key beside `type` and `data` of an entry that stands for variables of the worker itself."""
Scope = Literal["local", "shared", "global"]


class CredentialPut(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A credential to keep under its name: its fields, or where they are read from."""

    name: str
    type: str
    data: dict[str, Any] | None = None
    """The fields of the type."""
    from_: dict[str, Any] | None = msgspec.field(name="from", default=None)
    """Where the fields are read from when the credential is used."""
    meta: dict[str, Any] = {}
    tags: tuple[str, ...] = ()
    description: str = ""
    region: str = ""

    def __repr__(self) -> str:
        """Show the names of the fields, never a value."""
        return f"CredentialPut({self.name!r}, {self.type!r}, fields={sorted(self.data or ())!r})"


class CredentialShown(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a credential; its fields only where they were asked for and may be shown."""

    id: str
    name: str
    type: str
    meta: dict[str, Any]
    tags: tuple[str, ...]
    description: str
    region: str
    created_at: str
    updated_at: str
    data: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET

    def __repr__(self) -> str:
        """Show whose it is, never a value."""
        return f"CredentialShown({self.id!r}, {self.name!r}, {self.type!r})"


class CredentialPage(msgspec.Struct, frozen=True, kw_only=True):
    """Credentials, by name."""

    items: tuple[CredentialShown, ...]
    next_cursor: str | None = None


class CredentialRemoved(msgspec.Struct, frozen=True, kw_only=True):
    """It is no more."""

    id: str
    message: str = "the credential is deleted"


class CredentialTested(msgspec.Struct, frozen=True, kw_only=True):
    """The run that tries a credential."""

    execution_id: str


class SealedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A secret that one worker can open; texts are base64."""

    alg: str
    v: int
    eph_pub: str
    ciphertext: str
    expires_at: str
    """Until when the worker may keep what is inside."""


class KeychainPut(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A value of a keychain entry, to be kept until it expires."""

    data: dict[str, Any]
    scope_type: Scope = "global"
    execution_id: str | int | None = None
    """Of which run it is; of a shared one, the first run of the family."""
    credential_type: str = "static"
    expires_at: str | None = None
    expires_in: float | None = None
    """Seconds; without an end it is kept for ten minutes."""
    auto_renew: bool = False
    renew_config: dict[str, Any] | None = None
    """How it is made anew: the keys of a keychain entry."""

    def __repr__(self) -> str:
        """Show the names of the fields, never a value."""
        return f"KeychainPut(fields={sorted(self.data)!r}, scope_type={self.scope_type!r})"


class KeychainKept(msgspec.Struct, frozen=True, kw_only=True):
    """Where a value is kept, and until when."""

    cache_key: str
    expires_at: str
    status: Literal["success"] = "success"


class KeychainShown(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a value of the keychain."""

    status: Literal["found", "expired", "not_found"]
    name: str
    catalog_id: str
    cache_key: str
    scope_type: str
    execution_id: str | None = None
    credential_type: str | None = None
    cache_type: str | None = None
    expires_at: str | None = None
    auto_renew: bool = False
    created_at: str | None = None
    accessed_at: str | None = None
    access_count: int = 0
    data: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET

    def __repr__(self) -> str:
        """Show which it is, never a value."""
        return f"KeychainShown({self.cache_key!r}, {self.status!r})"


class KeychainPage(msgspec.Struct, frozen=True, kw_only=True):
    """The kept values of a document's keychain, without what is in them."""

    items: tuple[KeychainShown, ...]
    next_cursor: str | None = None


class KeychainRemoved(msgspec.Struct, frozen=True, kw_only=True):
    """Whether there was one."""

    status: Literal["deleted", "not_found"]


class RotateKek(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Every record is to be wrapped with the current version of the key."""

    batch_size: int = 100
    max_batches: int = 1000
    """Of each table; where it ends, the next call goes on."""


class TableRotation(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the records of one table."""

    processed: int
    rewrapped: int
    skipped: int
    """They were of the current version, or were written anew meanwhile."""
    failed: dict[str, int]
    """By class: `parse_error`, `failed_unwrap`, `failed_wrap`, `failed_write`."""
    last_id: str | None
    """Where it ended; none when the table was empty."""
    is_done: bool
    """No record is left behind `last_id`."""


class Rotated(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the records, by table."""

    tables: dict[str, TableRotation]
    is_done: bool


class KeyVersion(msgspec.Struct, frozen=True, kw_only=True):
    """How many records one version of a key has wrapped."""

    provider: str
    key_id: str
    version: str
    rows: int
    is_current: bool


class KeyStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Which key wraps, and which ones have."""

    provider: str
    key_id: str
    version: str
    tables: dict[str, tuple[KeyVersion, ...]]
    unreadable: dict[str, int]
    """Values that are no records, by table."""


class SecretUse(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the audit that is about a secret."""

    audit_id: str
    at: str
    actor: str
    action: str
    resource: str
    outcome: str
    source_ip: str
    tenant_id: str
    details: dict[str, Any]


class SecretAuditPage(msgspec.Struct, frozen=True, kw_only=True):
    """Uses of secrets, newest first."""

    rows: tuple[SecretUse, ...]
    next_cursor: str | None = None


class CrossRegion(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A credential of this region is wanted by a worker of another one."""

    name: str
    worker_id: str
    public_key: str
    """Of the worker: 32 bytes in base64."""
    execution_id: str | int
    region: str
    """Where the worker is."""
    tenant_id: str = "default"


class Expiring(msgspec.Struct, frozen=True, kw_only=True):
    """Values of the keychain that are about to expire, and credentials whose `meta` says so."""

    items: tuple[KeychainShown, ...]
    credentials: tuple[CredentialShown, ...]

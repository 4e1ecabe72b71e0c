"""Credentials, the keychain and the wallet that keeps both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.api.client.calls import INTERNAL, Calls, decoded, query, segment
from noetl.api.credentials import (
    CredentialPage,
    CredentialRemoved,
    CredentialShown,
    CredentialTested,
    CrossRegion,
    Expiring,
    KeychainKept,
    KeychainPage,
    KeychainPut,
    KeychainRemoved,
    KeychainShown,
    KeyStatus,
    Rotated,
    RotateKek,
    SealedAnswer,
    SecretAuditPage,
)

if TYPE_CHECKING:
    from noetl.api.credentials import CredentialPut, SealedKind


class Secrets(Calls):
    """Credentials, the keychain and the wallet that keeps both."""

    async def put_credential(self, body: CredentialPut) -> CredentialShown:
        """Keep a credential; one of that name gets the new fields."""
        return await self._post("/api/credentials", body, CredentialShown)

    async def credentials(self, **filters: str | int) -> CredentialPage:
        """A page of credentials without their fields; filters are the names of the query."""
        return await self._get(query("/api/credentials", filters), CredentialPage)

    async def credential(self, name: str, *, reveal: bool = False) -> CredentialShown:
        """One credential by its name or id; its fields for those who may see them."""
        asked = {"include_data": "true"} if reveal else {}
        return await self._get(query(_credential(name), asked), CredentialShown)

    async def delete_credential(self, name: str, *, force: bool = False) -> CredentialRemoved:
        """Forget a credential; one that documents name only with `force`."""
        path = query(_credential(name), {"force": "true"} if force else {})
        return decoded(await self._call("DELETE", path), CredentialRemoved)

    async def test_credential(self, name: str) -> CredentialTested:
        """Start a run that tries a credential."""
        return decoded(await self._call("POST", f"{_credential(name)}/test"), CredentialTested)

    async def sign_in_secret(self, alias: str, process: str, provider: str) -> SealedAnswer:
        """The secret of a client of a sign-in provider, sealed for one gateway alone."""
        path = f"{INTERNAL}/sign-in/{segment(alias)}"
        return await self._get(
            query(path, {"process": process, "provider": provider}), SealedAnswer
        )

    async def sealed(
        self,
        name: str,
        *,
        worker_id: str,
        execution_id: str,
        command_id: str,
        kind: SealedKind = "credential",
    ) -> SealedAnswer:
        """A secret for the worker that holds a command, sealed for it alone."""
        asked = {
            "worker_id": worker_id,
            "execution_id": execution_id,
            "command_id": command_id,
            "kind": None if kind == "credential" else kind,
        }
        return await self._get(query(f"{_credential(name)}/sealed", asked), SealedAnswer)

    async def sealed_for_listener(
        self, name: str, *, process: str, subscription_id: str
    ) -> SealedAnswer:
        """A credential that a subscription names, sealed for a process that listens for it."""
        asked = {"worker_id": process, "subscription_id": subscription_id, "kind": "subscription"}
        return await self._get(query(f"{_credential(name)}/sealed", asked), SealedAnswer)

    async def put_keychain(self, catalog_id: str, name: str, body: KeychainPut) -> KeychainKept:
        """Keep a value of a keychain entry."""
        return await self._post(_entry(catalog_id, name), body, KeychainKept)

    async def keychain_entry(self, catalog_id: str, name: str, **asked: str) -> KeychainShown:
        """Whether a value is kept, and until when; asked for by the names of the query."""
        return await self._get(query(_entry(catalog_id, name), asked), KeychainShown)

    async def keychain_entries(self, catalog_id: str, **filters: str | int) -> KeychainPage:
        """A page of what is kept for a document."""
        path = f"/api/keychain/catalog/{segment(catalog_id)}"
        return await self._get(query(path, filters), KeychainPage)

    async def delete_keychain(self, catalog_id: str, name: str, **asked: str) -> KeychainRemoved:
        """Forget a value of a keychain entry."""
        path = query(_entry(catalog_id, name), asked)
        return decoded(await self._call("DELETE", path), KeychainRemoved)

    async def rotate_kek(self, body: RotateKek) -> Rotated:
        """Wrap the keys of all records with the current key."""
        return await self._post(f"{INTERNAL}/wallet/rotate-kek", body, Rotated)

    async def key_status(self) -> KeyStatus:
        """How many records each key has wrapped."""
        return await self._get(f"{INTERNAL}/wallet/key-status", KeyStatus)

    async def secret_audit(self, **filters: str | int) -> SecretAuditPage:
        """A page of uses of secrets, newest first."""
        return await self._get(query(f"{INTERNAL}/secret-audit", filters), SecretAuditPage)

    async def resolve_for_region(self, body: CrossRegion) -> SealedAnswer:
        """A credential of this region for a worker of another one."""
        return await self._post(f"{INTERNAL}/cross-region/resolve", body, SealedAnswer)

    async def expiring_secrets(self, within_seconds: int) -> Expiring:
        """Secrets that end soon."""
        path = query(f"{INTERNAL}/credentials/expiring", {"within_seconds": within_seconds})
        return await self._get(path, Expiring)


def _credential(name: str) -> str:
    return f"/api/credentials/{segment(name)}"


def _entry(catalog_id: str, name: str) -> str:
    return f"/api/keychain/{segment(catalog_id)}/{segment(name)}"

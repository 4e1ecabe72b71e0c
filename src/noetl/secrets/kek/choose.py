"""The key of keys that a server is told by its settings; none, or a bad one, stops the start."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from noetl.secrets.file import SecretFile
from noetl.secrets.kek.gcp import BASE as GCP_BASE
from noetl.secrets.kek.gcp import SCOPE, GcpKek
from noetl.secrets.kek.local import PROVIDER as LOCAL
from noetl.secrets.kek.local import BadKey, LocalKek
from noetl.secrets.kek.remote import SETTING
from noetl.secrets.kek.ring import Ring
from noetl.secrets.kek.vault import PROVIDER as VAULT
from noetl.secrets.kek.vault import VaultKek
from noetl.secrets.source import SourceError
from noetl.secrets.tokens.bearer import Bearer
from noetl.secrets.tokens.google import ServiceAccount, mint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from noetl.clock import Clock
    from noetl.secrets.fetch import Fetch
    from noetl.secrets.kek.base import Kek

PROVIDERS: Final = ("local", "vault", "gcp-kms")
PREVIOUS: Final = "_PREVIOUS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How a key service is reached; what is secret is not shown."""

    vault_address: str = ""
    vault_token: str = field(default="", repr=False)
    vault_token_file: Path | None = None
    """Where the token lies, when it may be replaced there."""
    told: Callable[[str], None] = lambda _: None
    """Hears of each token that was not there before."""
    vault_namespace: str = ""
    google_account: str = field(default="", repr=False)
    """JSON of a service account; without it the machine's own identity is asked for."""
    metadata: Fetch | None = None
    """The way to the metadata service of the machine."""
    gcp_base: str = GCP_BASE


def kek_of(  # noqa: PLR0913 - one argument per setting
    provider: str,
    key: str,
    local_keys: str,
    fetch: Fetch,
    *,
    clock: Clock,
    access: Access | None = None,
    previous: str = "",
    previous_key: str = "",
) -> Kek:
    """The key of keys of these settings; that of a previous provider only opens records.

    Local keys beside a service open older records without being named.
    """
    makers = _Makers(fetch, local_keys, clock, access or Access())
    current = makers.made(provider, key)
    others = []
    if previous == provider:
        raise BadKey(
            f"NOETL_KMS_PROVIDER_PREVIOUS is {provider}, which is NOETL_KMS_PROVIDER already.",
            hint="unset it: records name their key, and a provider opens with each that it has",
        )
    if previous:
        others.append(makers.made(previous, previous_key, PREVIOUS))
    if local_keys.strip() and LOCAL not in (provider, previous):
        others.append(LocalKek(local_keys))
    return Ring(current, *others) if others else current


@dataclass(frozen=True, slots=True)
class _Makers:
    """What keys of keys are made from; `suffix` ends the names of the settings that ask for one."""

    fetch: Fetch
    local_keys: str
    clock: Clock
    access: Access

    def made(self, provider: str, key: str, suffix: str = "") -> Kek:
        """The key of keys of a provider."""
        asks, setting = f"NOETL_KMS_PROVIDER{suffix}", f"{SETTING}{suffix}"
        if provider not in PROVIDERS:
            raise BadKey(
                f"{asks} is {provider[:40]!r}, which wraps no keys.",
                hint=f"use {', '.join(PROVIDERS)}",
            )
        if provider == LOCAL:
            return self._local()
        if not key.strip():
            raise BadKey(
                f"{setting} is not set, and {asks} is {provider}.",
                hint="name the key that wraps the keys of secrets",
            )
        made = self._vault if provider == VAULT else self._gcp
        return made(key.strip(), asks, setting)

    def _local(self) -> Kek:
        if not self.local_keys.strip():
            raise BadKey(
                "NOETL_ENCRYPTION_KEY is not set, so no secret can be kept.",
                hint="set it to base64 of 32 bytes (head -c 32 /dev/urandom | base64), "
                "or set NOETL_KMS_PROVIDER",
            )
        return LocalKek(self.local_keys)

    def _vault(self, key: str, asks: str, setting: str) -> Kek:
        access = self.access
        told = (("VAULT_ADDR", access.vault_address), ("VAULT_TOKEN", access.vault_token))
        for name, value in told:
            if not value:
                raise BadKey(
                    f"{name} is not set, and {asks} is vault.",
                    hint="set VAULT_ADDR and VAULT_TOKEN (or VAULT_TOKEN_FILE)",
                )
        file = access.vault_token_file
        in_file = SecretFile(file, access.vault_token, access.told) if file else None
        return VaultKek(
            self.fetch,
            key,
            address=access.vault_address,
            token=in_file or (lambda: access.vault_token),
            namespace=access.vault_namespace,
            setting=setting,
        )

    def _gcp(self, key: str, asks: str, setting: str) -> Kek:
        access = self.access
        try:
            account = ServiceAccount.of(access.google_account) if access.google_account else None
        except SourceError as fault:
            raise BadKey(
                f"GOOGLE_APPLICATION_CREDENTIALS names no key file: {fault.message}.",
                hint=fault.hint,
            ) from None
        if account is None and access.metadata is None:
            raise BadKey(
                f"{asks} is gcp-kms, and nobody tells who we are there.",
                hint="set GOOGLE_APPLICATION_CREDENTIALS to the file of a service account",
            )
        asked = partial(
            mint, self.fetch, self.clock, scope=SCOPE, account=account, metadata=access.metadata
        )
        bearer = Bearer(self.clock, asked)
        return GcpKek(self.fetch, key, bearer=bearer, base=access.gcp_base, setting=setting)

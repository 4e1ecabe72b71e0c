"""The key of keys that a server is told by its settings; none, or a bad one, stops the start."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from noetl.secrets.kek.gcp import BASE as GCP_BASE
from noetl.secrets.kek.gcp import SCOPE, GcpKek
from noetl.secrets.kek.local import PROVIDER as LOCAL
from noetl.secrets.kek.local import BadKey, LocalKek
from noetl.secrets.kek.ring import Ring
from noetl.secrets.kek.vault import PROVIDER as VAULT
from noetl.secrets.kek.vault import VaultKek
from noetl.secrets.source import SourceError
from noetl.secrets.tokens.bearer import Bearer
from noetl.secrets.tokens.google import ServiceAccount, mint

if TYPE_CHECKING:
    from noetl.clock import Clock
    from noetl.secrets.fetch import Fetch
    from noetl.secrets.kek.base import Kek

PROVIDERS: Final = ("local", "vault", "gcp-kms")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How a key service is reached; what is secret is not shown."""

    vault_address: str = ""
    vault_token: str = field(default="", repr=False)
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
) -> Kek:
    """The key of keys of these settings; local keys beside a service open older records."""
    access = access or Access()
    if provider not in PROVIDERS:
        raise BadKey(
            f"NOETL_KMS_PROVIDER is {provider[:40]!r}, which wraps no keys.",
            hint=f"use {', '.join(PROVIDERS)}",
        )
    if provider == LOCAL:
        if not local_keys.strip():
            raise BadKey(
                "NOETL_ENCRYPTION_KEY is not set, so no secret can be kept.",
                hint="set it to base64 of 32 bytes (head -c 32 /dev/urandom | base64), "
                "or set NOETL_KMS_PROVIDER",
            )
        return LocalKek(local_keys)
    if not key.strip():
        raise BadKey(
            f"NOETL_KMS_KEY is not set, and NOETL_KMS_PROVIDER is {provider}.",
            hint="name the key that wraps the keys of secrets",
        )
    made = (
        _vault(fetch, key.strip(), access)
        if provider == VAULT
        else _gcp(fetch, key.strip(), access, clock)
    )
    return Ring(made, LocalKek(local_keys)) if local_keys.strip() else made


def _vault(fetch: Fetch, key: str, access: Access) -> Kek:
    for name, value in (("VAULT_ADDR", access.vault_address), ("VAULT_TOKEN", access.vault_token)):
        if not value:
            raise BadKey(
                f"{name} is not set, and NOETL_KMS_PROVIDER is vault.",
                hint="set VAULT_ADDR and VAULT_TOKEN (or VAULT_TOKEN_FILE)",
            )
    return VaultKek(
        fetch,
        key,
        address=access.vault_address,
        token=access.vault_token,
        namespace=access.vault_namespace,
    )


def _gcp(fetch: Fetch, key: str, access: Access, clock: Clock) -> Kek:
    try:
        account = ServiceAccount.of(access.google_account) if access.google_account else None
    except SourceError as fault:
        raise BadKey(
            f"GOOGLE_APPLICATION_CREDENTIALS names no key file: {fault.message}.", hint=fault.hint
        ) from None
    if account is None and access.metadata is None:
        raise BadKey(
            "NOETL_KMS_PROVIDER is gcp-kms, and nobody tells who we are there.",
            hint="set GOOGLE_APPLICATION_CREDENTIALS to the file of a service account",
        )
    asked = partial(mint, fetch, clock, scope=SCOPE, account=account, metadata=access.metadata)
    return GcpKek(fetch, key, bearer=Bearer(clock, asked), base=access.gcp_base)

"""The secret manager that an entry of a keychain names, reached with its credential."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from noetl.secrets.aws import AwsKeys
from noetl.secrets.providers.aws import AwsSecrets
from noetl.secrets.providers.azure import SCOPE, AzureSecrets
from noetl.secrets.providers.gcp import BASE as GCP_BASE
from noetl.secrets.providers.gcp import GcpSecrets
from noetl.secrets.providers.k8s import K8sSecrets
from noetl.secrets.providers.vault import MOUNT, VaultSecrets
from noetl.secrets.source import SourceRefused, needed
from noetl.secrets.tokens.azure import mint as azure_mint
from noetl.secrets.tokens.bearer import Bearer
from noetl.secrets.tokens.google import account_of
from noetl.secrets.tokens.google import mint as google_mint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.clock import Clock
    from noetl.secrets.fetch import Fetch
    from noetl.secrets.providers.base import SecretManager

TYPE_OF: Final = {
    "gcp": "gcp", "aws": "aws", "azure": "azure", "vault": "vault", "k8s": "kubernetes",
}  # fmt: skip
"""The type whose fields a provider reads."""
PROVIDERS: Final = tuple(TYPE_OF)


def manager_of(  # noqa: PLR0913 - the entry's keys and the ports
    provider: str,
    fields: Mapping[str, Any],
    fetch: Fetch,
    *,
    clock: Clock,
    region: str = "",
    metadata: Fetch | None = None,
) -> SecretManager:
    """A secret manager for the fields of its type by their first names; a missing one is told."""
    what = f"a credential for the provider {provider}"
    if provider == "gcp":
        account = account_of(fields)
        base = _text(fields, "endpoint") or GCP_BASE
        if account is None and base.rstrip("/") != GCP_BASE.rstrip("/"):
            raise SourceRefused(
                "the machine's own identity is shown to Google only",
                hint="name a service account beside `endpoint`",
            )
        return GcpSecrets(
            fetch,
            bearer=Bearer(
                clock, partial(google_mint, fetch, clock, account=account, metadata=metadata)
            ),
            project=_text(fields, "project") or (account.project if account else ""),
            base=base,
        )
    if provider == "aws":
        return AwsSecrets(
            fetch,
            clock,
            keys=AwsKeys.of(fields),
            region=region or needed(fields, ("region",), what),
            endpoint=_text(fields, "endpoint"),
        )
    if provider == "azure":
        return AzureSecrets(
            fetch,
            bearer=Bearer(clock, partial(azure_mint, fetch, fields, scope=SCOPE)),
            vault_url=needed(fields, ("vault_url",), what),
        )
    if provider == "vault":
        return VaultSecrets(
            fetch,
            address=needed(fields, ("url",), what),
            token=needed(fields, ("token",), what),
            namespace=_text(fields, "namespace"),
            mount=_text(fields, "mount") or MOUNT,
        )
    if provider == "k8s":
        return K8sSecrets(
            fetch,
            server=needed(fields, ("url",), what),
            token=needed(fields, ("token",), what),
            namespace=_text(fields, "namespace") or "default",
            authority=_text(fields, "ca"),
        )
    raise SourceRefused(
        f"{provider[:40]!r} is no secret manager", hint=f"use {', '.join(PROVIDERS)}"
    )


def _text(fields: Mapping[str, Any], name: str) -> str:
    return str(fields.get(name) or "")

"""Tokens of Microsoft Entra for an application (`azure-oauth`)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from noetl.secrets.source import SourceRefused, needed
from noetl.secrets.tokens.oauth2 import mint as oauth2_mint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.secrets.fetch import Fetch
    from noetl.secrets.tokens.base import Token

LOGIN: Final = "https://login.microsoftonline.com"
_WHAT: Final = "a credential for Azure"
_TENANT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,253}\Z")


async def mint(fetch: Fetch, fields: Mapping[str, Any], *, scope: str) -> Token:
    """An access token for a scope: fields `access_token`, `token`, `token_type`."""
    tenant = needed(fields, ("tenant_id",), _WHAT)
    if not _TENANT.match(tenant):
        raise SourceRefused("the field `tenant_id` is not the id of a tenant of Azure")
    authority = str(fields.get("authority") or LOGIN).rstrip("/")
    return await oauth2_mint(
        fetch,
        f"{authority}/{tenant}/oauth2/v2.0/token",
        data={
            "grant_type": "client_credentials",
            "client_id": needed(fields, ("client_id",), _WHAT),
            "client_secret": needed(fields, ("client_secret",), _WHAT),
            "scope": scope,
        },
    )

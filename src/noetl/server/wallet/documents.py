"""Documents of `kind: Credential`: the data goes into the wallet, the catalog keeps the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.api.credentials import CredentialPut

if TYPE_CHECKING:
    from noetl.dsl.documents.credential import Credential
    from noetl.dsl.parse import Parsed
    from noetl.server.access.caller import Caller
    from noetl.server.wallet.credentials import Credentials

MASK: Final = "***"


async def taken(credentials: Credentials, model: Credential, parsed: Parsed, caller: Caller) -> str:
    """Keep what a document brings, and give its text without any value of the data."""
    root: Any = msgspec.to_builtins(parsed.document.root)
    spec, about = root["spec"], model.metadata
    extra = about.extra
    await credentials.put(
        CredentialPut(
            name=about.name,
            type=model.spec.type,
            data=spec.get("data"),
            from_=spec.get("from"),
            meta={
                "path": about.path or about.name,
                **{name: extra[name] for name in _KEPT if name in extra},
            },
            tags=about.tags,
            description=about.description or "",
            region=str(extra.get("region") or ""),
        ),
        caller,
    )
    if "data" in spec:
        spec["data"] = _masked(spec["data"])
    return msgspec.json.format(msgspec.json.encode(root), indent=2).decode() + "\n"


_KEPT: Final = ("test", "residency", "allowed_regions", "expires_at", "rotate_with")
"""Further keys of the metadata that say how a credential is used."""


def _masked(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """A value whose shape is told and nothing else; what is true or false is no secret."""
    if isinstance(value, Mapping):
        return {name: _masked(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_masked(item) for item in value]
    return value if value is None or isinstance(value, bool) else MASK

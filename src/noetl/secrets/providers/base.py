"""What a secret manager does, and how the names of its secrets are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from noetl.secrets.source import SourceMissing, SourceRefused

if TYPE_CHECKING:
    from collections.abc import Mapping


class SecretManager(Protocol):
    """A system that keeps secrets for others."""

    async def read(self, name: str, version: str | None = None) -> str:
        """One secret, its latest version without another.

        `SourceMissing` when there is none, `SourceRefused` when we may not read it,
        `SourceUnavailable` when nobody answers.
        """


def split_field(name: str) -> tuple[str, str]:
    """The secret and the field of it that are meant: `app/db#password`."""
    secret, _, field = name.partition("#")
    return secret.strip("/"), field


def field_of(found: Mapping[str, Any], field: str, who: str) -> str:
    """One field of a secret, or all of them as JSON."""
    if not field:
        return msgspec.json.encode(dict(found)).decode()
    if field not in found:
        raise SourceMissing(f"the secret in {who} has no field `{field[:80]}`")
    value = found[field]
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def as_text(data: bytes, who: str) -> str:
    """The bytes of a secret as text; secrets of other bytes have no place in a template."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise SourceRefused(
            f"the secret in {who} is no UTF-8 text", hint="keep it there as base64"
        ) from None

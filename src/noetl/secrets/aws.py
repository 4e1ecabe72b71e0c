"""How a request to AWS proves who sends it: Signature Version 4."""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote, urlsplit

from noetl.dsl.documents.credential_types import first_names
from noetl.secrets.source import needed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from noetl.secrets.fetch import Ask

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_UNSAFE: Final = "-_.~"
_WHAT: Final = "a credential of AWS"


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsKeys:
    """An access key and its secret; a session has a token as well."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> AwsKeys:
        """The keys of a credential of the type `aws`."""
        fields = first_names("aws", fields)
        return cls(
            access_key_id=needed(fields, ("access_key_id",), _WHAT),
            secret_access_key=needed(fields, ("secret_access_key",), _WHAT),
            session_token=str(fields.get("session_token") or ""),
        )


def signed(ask: Ask, keys: AwsKeys, *, region: str, service: str, now: datetime) -> Ask:
    """The same request with its signature."""
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    day = stamp[:8]
    parts = urlsplit(ask.url)
    headers = {name.lower(): value.strip() for name, value in ask.headers.items()}
    headers["x-amz-date"] = stamp
    if keys.session_token:
        headers["x-amz-security-token"] = keys.session_token
    covered = {**headers, "host": parts.netloc}
    names = ";".join(sorted(covered))
    query = sorted(
        (quote(name, safe=_UNSAFE), quote(value, safe=_UNSAFE))
        for name, value in parse_qsl(parts.query, keep_blank_values=True)
    )
    canonical = "\n".join(
        (
            ask.method,
            quote(parts.path or "/", safe=f"/{_UNSAFE}"),
            "&".join(f"{name}={value}" for name, value in query),
            *(f"{name}:{' '.join(covered[name].split())}" for name in sorted(covered)),
            "",
            names,
            sha256(ask.body or b"").hexdigest(),
        )
    )
    scope = f"{day}/{region}/{service}/aws4_request"
    text = "\n".join((_ALGORITHM, stamp, scope, sha256(canonical.encode()).hexdigest()))
    key = f"AWS4{keys.secret_access_key}".encode()
    for step in (day, region, service, "aws4_request"):
        key = _mac(key, step)
    proof = _mac(key, text).hex()
    headers["authorization"] = (
        f"{_ALGORITHM} Credential={keys.access_key_id}/{scope}, "
        f"SignedHeaders={names}, Signature={proof}"
    )
    return replace(ask, headers=headers)


def _mac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), sha256).digest()

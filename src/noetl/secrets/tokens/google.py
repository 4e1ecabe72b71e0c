"""Tokens of Google: for a service account by its signed word, or for the machine we run on."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import msgspec

from noetl.secrets.fetch import Ask
from noetl.secrets.source import SourceRefused, answered, needed, text_in, told
from noetl.secrets.tokens.base import Token, left_of, seconds

if TYPE_CHECKING:
    from noetl.clock import Clock
    from noetl.secrets.fetch import Fetch

CLOUD: Final = "https://www.googleapis.com/auth/cloud-platform"
TOKEN_URI: Final = "https://oauth2.googleapis.com/token"  # noqa: S105 - an address
METADATA: Final = "http://metadata.google.internal/computeMetadata/v1"
_GRANT: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_HOUR_S: Final = 3600
_WHO: Final = "Google"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAccount:
    """An account that proves itself with a private key."""

    email: str
    private_key: str = field(repr=False)
    key_id: str = ""
    project: str = ""
    token_uri: str = TOKEN_URI

    @classmethod
    def of(cls, given: str | Mapping[str, Any]) -> ServiceAccount:
        """The account of a key file's JSON, as text or as a map."""
        try:
            found = msgspec.json.decode(given) if isinstance(given, str) else given
        except (msgspec.DecodeError, UnicodeEncodeError):
            found = None
        if not isinstance(found, Mapping):
            raise SourceRefused(
                "the service account is no JSON map",
                hint="give the whole content of the key file that Google made",
            )
        what = "a service account of Google"
        return cls(
            email=needed(found, ("client_email",), what),
            private_key=needed(found, ("private_key",), what),
            key_id=str(found.get("private_key_id") or ""),
            project=str(found.get("project_id") or ""),
            token_uri=str(found.get("token_uri") or TOKEN_URI),
        )


async def mint(
    fetch: Fetch,
    clock: Clock,
    *,
    scope: str = CLOUD,
    account: ServiceAccount | None = None,
    metadata: Fetch | None = None,
) -> Token:
    """An access token: fields `access_token`, `token`, `token_type`."""
    if account is not None:
        found = await _exchanged(fetch, clock, account, {"scope": scope})
    else:
        query = urlencode({"scopes": scope.replace(" ", ",")})
        ask = _of_machine(f"token?{query}")
        found = await told(_machine(metadata), ask, "the metadata service")
    token = text_in(found, "access_token", _WHO)
    fields = {"access_token": token, "token": token, "token_type": "Bearer"}
    return Token(fields=fields, expires_in=seconds(found.get("expires_in")))


async def mint_id_token(
    fetch: Fetch,
    clock: Clock,
    *,
    audience: str,
    account: ServiceAccount | None = None,
    metadata: Fetch | None = None,
) -> Token:
    """A token that tells a service of this audience who calls: fields `id_token`, `token`."""
    if not audience:
        raise SourceRefused(
            "an identity token of Google needs an audience",
            hint="put the address of the called service into `endpoint`",
        )
    if account is not None:
        found = await _exchanged(fetch, clock, account, {"target_audience": audience})
        token = text_in(found, "id_token", _WHO)
    else:
        ask = _of_machine(f"identity?{urlencode({'audience': audience, 'format': 'full'})}")
        answer = await answered(_machine(metadata), ask, "the metadata service")
        token = answer.body.decode("latin-1").strip()
    fields = {"id_token": token, "token": token, "token_type": "Bearer"}
    return Token(fields=fields, expires_in=left_of(token, clock.now()))


def account_of(fields: Mapping[str, Any]) -> ServiceAccount | None:
    """The service account of a credential's fields: inside of `service_account`, or the fields."""
    inner = fields.get("service_account")
    if inner:
        return ServiceAccount.of(inner)
    return ServiceAccount.of(fields) if "private_key" in fields else None


def signed(account: ServiceAccount, claims: Mapping[str, Any]) -> str:
    """A JWT with the account's signature (RS256)."""
    # The library takes longer to import than a short local run may; most runs need none of it.
    from cryptography.hazmat.primitives.asymmetric import padding, rsa  # noqa: PLC0415 - see above
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415 - see above
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415 - see above
        load_pem_private_key,
    )

    head = {"alg": "RS256", "typ": "JWT"}
    if account.key_id:
        head["kid"] = account.key_id
    text = b".".join(_encoded(msgspec.json.encode(part)) for part in (head, claims))
    try:
        key = load_pem_private_key(account.private_key.encode(), password=None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, rsa.RSAPrivateKey):
        raise SourceRefused(
            "the private key of the service account cannot be read",
            hint="give the whole content of the key file that Google made",
        )
    signature = key.sign(text, padding.PKCS1v15(), SHA256())
    return b".".join((text, _encoded(signature))).decode("ascii")


async def _exchanged(
    fetch: Fetch, clock: Clock, account: ServiceAccount, wanted: Mapping[str, str]
) -> dict[str, Any]:
    """What Google gives for the account's signed word."""
    now = int(clock.now().timestamp())
    claims = {
        "iss": account.email,
        "sub": account.email,
        "aud": account.token_uri,
        "iat": now,
        "exp": now + _HOUR_S,
        **wanted,
    }
    body = urlencode({"grant_type": _GRANT, "assertion": signed(account, claims)})
    ask = Ask(
        method="POST",
        url=account.token_uri,
        headers={"content-type": "application/x-www-form-urlencoded"},
        body=body.encode(),
    )
    return await told(fetch, ask, _WHO)


def _of_machine(path: str) -> Ask:
    return Ask(
        method="GET",
        url=f"{METADATA}/instance/service-accounts/default/{path}",
        headers={"metadata-flavor": "Google"},
    )


def _machine(metadata: Fetch | None) -> Fetch:
    if metadata is None:
        raise SourceRefused(
            "nobody tells who asks Google: the credential has no service account",
            hint="put the service account's JSON into the credential as `service_account`",
        )
    return metadata


def _encoded(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")

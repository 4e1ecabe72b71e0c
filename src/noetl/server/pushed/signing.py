"""Deliveries signed as their senders sign them: one function per scheme, by the same credentials.

What only a sender has, a private key or that of an issuer, cannot be had here.
"""

from __future__ import annotations

import base64
import hmac
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlencode

import msgspec

from noetl.dsl.subscription.verify import (
    ApiKeyVerify,
    BasicVerify,
    BearerVerify,
    GithubVerify,
    HmacVerify,
    JwtVerify,
    ShopifyVerify,
    SlackVerify,
    StandardVerify,
    StripeVerify,
    SvixVerify,
)
from noetl.secrets.text import from_text
from noetl.server.subscriptions.errors import CannotSign

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from noetl.dsl.subscription.verify import Verify

    Secrets: TypeAlias = Mapping[str, Mapping[str, Any]]
    """The fields of credentials, by their aliases."""

_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")
_SHARED: Final = ("value", "secret", "signing_secret", "webhook_secret", "key", "token", "password")
_WEBHOOK: Final = "whsec_"
_AUTHORIZATION: Final = "authorization"
_TOKEN_S: Final = 300
_encode: Final = msgspec.json.Encoder().encode


@dataclass(slots=True, kw_only=True)
class Draft:
    """A delivery that is to be signed; names of headers are in small letters."""

    path: str
    body: bytes = field(repr=False)
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    query: str = field(default="", repr=False)
    now: int = 0
    id: str = ""
    """A new id of a delivery, for senders that give one."""

    def given(self, name: str, value: str) -> str:
        """A header as it is, or with this value from now on."""
        return self.headers.setdefault(name, value)


def sign(config: Verify | None, secrets: Secrets, draft: Draft) -> None:
    """Put into a delivery what proves where it comes from."""
    scheme = "" if config is None else config.type
    if isinstance(config, HmacVerify):
        scheme = config.scheme
    signer = SIGNERS.get(scheme)
    if signer is None:
        raise CannotSign(f"only the sender can sign deliveries of `{scheme or 'none'}`")
    signer(config, secrets, draft)


# ---------------------------------------------------------------------------- signatures


def _hmac(config: HmacVerify, secrets: Secrets, draft: Draft) -> None:
    key = _first(secrets, config.secret, _SHARED).encode()
    if config.timestamp is not None:
        draft.given(config.timestamp.header, str(draft.now))
    if config.id is not None and config.id.header:
        draft.given(config.id.header, draft.id)
    template = config.template or "{body}"
    parts, end = list[bytes](), 0
    for found in _PLACEHOLDER.finditer(template):
        parts += [template[end : found.start()].encode(), _filled(config, found[1], draft)]
        end = found.end()
    signed = b"".join([*parts, template[end:].encode()])
    digest = hmac.digest(key, signed, config.algorithm)
    draft.headers[config.header] = (config.prefix or "") + _written(digest, config.encoding)


def _filled(config: HmacVerify, name: str, draft: Draft) -> bytes:
    """What stands for a placeholder of a template."""
    if name.startswith("header:"):
        return draft.headers.get(name.removeprefix("header:").lower(), "").encode("latin-1")
    match name:
        case "body":
            return draft.body
        case "timestamp" if config.timestamp is not None:
            return draft.headers[config.timestamp.header].encode("latin-1")
        case "id" if config.id is not None and config.id.header:
            return draft.headers[config.id.header].encode("latin-1")
        case "id" if config.id is not None and config.id.body:
            return _in_body(draft.body, config.id.body).encode()
        case "method":
            return b"POST"
        case "path":
            return draft.path.encode()
        case _:
            raise CannotSign(f"nothing stands for `{{{name}}}` of the template")


def _in_body(body: bytes, path: str) -> str:
    """The text or whole number at a path of a body in JSON; empty when there is none."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    for part in path.split("."):
        if isinstance(found, dict):
            found = found.get(part)
        elif isinstance(found, list) and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        else:
            return ""
    is_text = isinstance(found, (str, int)) and not isinstance(found, bool)
    return str(found) if is_text else ""


def _stripe(config: StripeVerify | HmacVerify, secrets: Secrets, draft: Draft) -> None:
    signed = f"{draft.now}.".encode() + draft.body
    digest = _digest(config.secret, secrets, signed).hex()
    draft.headers[StripeVerify.signature_header] = f"t={draft.now},v1={digest}"


def _github(config: GithubVerify | HmacVerify, secrets: Secrets, draft: Draft) -> None:
    draft.given("x-github-delivery", draft.id)
    digest = _digest(config.secret, secrets, draft.body).hex()
    draft.headers[GithubVerify.signature_header] = f"sha256={digest}"


def _slack(config: SlackVerify | HmacVerify, secrets: Secrets, draft: Draft) -> None:
    time = draft.given("x-slack-request-timestamp", str(draft.now))
    signed = b"v0:" + time.encode("latin-1") + b":" + draft.body
    digest = _digest(config.secret, secrets, signed).hex()
    draft.headers[SlackVerify.signature_header] = f"v0={digest}"


def _shopify(config: ShopifyVerify, secrets: Secrets, draft: Draft) -> None:
    draft.given("x-shopify-webhook-id", draft.id)
    digest = _digest(config.secret, secrets, draft.body)
    draft.headers[config.signature_header] = _written(digest, "base64")


def _standard(config: StandardVerify | SvixVerify, secrets: Secrets, draft: Draft) -> None:
    prefix = config.signature_header.partition("-")[0]
    given = draft.given(f"{prefix}-id", draft.id)
    time = draft.given(f"{prefix}-timestamp", str(draft.now))
    signed = f"{given}.{time}.".encode("latin-1") + draft.body
    for told in _texts(secrets, config.secret, _SHARED):
        try:  # a public key of the sender signs nothing
            key = from_text(told.removeprefix(_WEBHOOK))
        except ValueError:
            continue
        digest = _written(hmac.digest(key, signed, "sha256"), "base64")
        draft.headers[config.signature_header] = f"v1,{digest}"
        return
    raise CannotSign("no credential of the listener holds a secret that signs")


# ---------------------------------------------------------------------------- tokens


def _bearer(config: BearerVerify, secrets: Secrets, draft: Draft) -> None:
    _as_token(draft, config.header, _first(secrets, config.secret, ("token", "value", "key")))


def _basic(config: BasicVerify, secrets: Secrets, draft: Draft) -> None:
    user = _first(secrets, (config.user,), ("username", "user", "value"))
    password = _first(secrets, config.password, ("password", "value", "secret"))
    both = base64.b64encode(f"{user}:{password}".encode()).decode("ascii")
    draft.headers[_AUTHORIZATION] = f"Basic {both}"


def _api_key(config: ApiKeyVerify, secrets: Secrets, draft: Draft) -> None:
    key = _first(secrets, config.secret, ("key", "value", "token"))
    if config.query is None or not config.allow_query:
        draft.headers[config.header] = key
        return
    draft.headers.pop(config.header, None)
    added = urlencode({config.query: key})
    draft.query = f"{draft.query}&{added}" if draft.query else added


def _jwt(config: JwtVerify, secrets: Secrets, draft: Draft) -> None:
    names = ("key", "value", "public_key", "secret", "token")
    told = [
        one for one in _texts(secrets, config.key_, names) if not one.startswith(("-----", "{"))
    ]
    if not told or "hs256" not in {name.lower() for name in config.algorithms}:
        raise CannotSign("tokens of this listener are signed by their issuer")
    claims = {
        **config.claims,
        "iss": config.issuer,
        "aud": config.audience,
        "iat": draft.now,
        "exp": draft.now + _TOKEN_S,
    }
    parts = [
        _written(_encode(one), "base64url") for one in ({"alg": "HS256", "typ": "JWT"}, claims)
    ]
    signed = ".".join(parts)
    signature = _written(hmac.digest(told[0].encode(), signed.encode(), "sha256"), "base64url")
    _as_token(draft, config.header, f"{signed}.{signature}")


def _as_token(draft: Draft, header: str, token: str) -> None:
    draft.headers[header] = f"Bearer {token}" if header == _AUTHORIZATION else token


SIGNERS: Final[Mapping[str, Callable[[Any, Secrets, Draft], None]]] = {
    "hmac_sha256": _hmac,
    "stripe": _stripe,
    "github": _github,
    "slack": _slack,
    "standard_webhooks": _standard,
    "svix": _standard,
    "shopify": _shopify,
    "bearer": _bearer,
    "basic": _basic,
    "api_key": _api_key,
    "jwt": _jwt,
    "oidc": _jwt,
}
"""Those that have secrets of their own are missing: `ed25519` and `pubsub_oidc`."""


# ---------------------------------------------------------------------------- secrets


def _digest(aliases: Iterable[str], secrets: Secrets, signed: bytes) -> bytes:
    return hmac.digest(_first(secrets, aliases, _SHARED).encode(), signed, "sha256")


def _first(secrets: Secrets, aliases: Iterable[str], names: Iterable[str]) -> str:
    """The secret of the first credential that has one; the newest stands first."""
    for found in _texts(secrets, aliases, names):
        return found
    raise CannotSign("the credentials of the listener hold no secret", hint="put one of them")


def _texts(secrets: Secrets, aliases: Iterable[str], names: Iterable[str]) -> Iterable[str]:
    order = tuple(names)
    for alias in aliases:
        fields = secrets.get(alias, {})
        found = (value for name in order if isinstance(value := fields.get(name), str) and value)
        yield from (one for one in [next(found, None)] if one is not None)


def _written(data: bytes, encoding: str) -> str:
    if encoding == "hex":
        return data.hex()
    if encoding == "base64":
        return base64.b64encode(data).decode("ascii")
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")

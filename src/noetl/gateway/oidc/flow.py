"""Signing in at an issuer: there with a challenge, back with a code, and who it was."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote_plus, urlencode, urlsplit

import msgspec

from noetl.api.identity import Identity
from noetl.gateway.cookies import is_loopback
from noetl.gateway.oidc.errors import BadClaims, BadState, CodeRefused, IssuerUnreachable
from noetl.gateway.oidc.issuer import Issuer
from noetl.gateway.oidc.tokens import heading
from noetl.gateway.once import Once
from noetl.secrets.fetch import Ask

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.bus.keys import Keys
    from noetl.clock import Clock
    from noetl.gateway.oidc.issuer import Endpoints
    from noetl.gateway.oidc.provider import Provider, Providers
    from noetl.gateway.oidc.secrets import ClientSecrets
    from noetl.secrets.fetch import Answer, Fetch

STATE_S: Final = 600
MOST_CHARS: Final = 2048
_BYTES: Final = 32
_BAD_REQUEST: Final = 400
_SERVER_FAULT: Final = 500
_BINDING: Final = re.compile(r"[A-Za-z0-9_-]{43}\Z")
_VERIFIER: Final = re.compile(r"[A-Za-z0-9._~-]{43,128}\Z")
_FORM: Final = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
_INVALID_CLIENT: Final = "invalid_client"
_log: Final = logging.getLogger(__name__)


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """A sign-in that has left for its issuer."""

    provider: str
    nonce: str
    verifier: str
    return_to: str
    redirect_uri: str
    binding: str
    """Digest of the cookie of the browser that began it."""


class _Given(msgspec.Struct, frozen=True, kw_only=True):
    id_token: str


class _Fault(msgspec.Struct, frozen=True, kw_only=True):
    error: str


@dataclass(frozen=True, slots=True)
class Departure:
    """Where a browser goes, and what it keeps meanwhile."""

    url: str
    binding: str


class SignIns:
    """Sign-ins through issuers."""

    def __init__(
        self,
        providers: Providers,
        keys: Keys,
        fetch: Fetch,
        clock: Clock,
        secrets: ClientSecrets | None = None,
    ) -> None:
        """`secrets` gives those that providers name by an alias."""
        self.providers = providers
        self._secrets = secrets
        self._begun = Once(keys, "o", clock)
        self._issuers = {one.name: Issuer(one, fetch, clock) for one in providers}

    async def start(
        self, name: str, *, return_to: str, redirect_uri: str, binding: str
    ) -> Departure:
        """Send a browser to an issuer; a cookie that it has from before binds this one as well."""
        provider = self.providers.named(name)
        where = await self._issuers[name].endpoints()
        nonce, verifier = _random(), _random()
        bound = binding if _BINDING.match(binding) else _random()
        begun = Begun(
            provider=name,
            nonce=nonce,
            verifier=verifier,
            return_to=safe_return(return_to),
            redirect_uri=provider.redirect_uri or redirect_uri,
            binding=_digest(bound),
        )
        state = await self._begun.put(msgspec.json.encode(begun), STATE_S)
        asked = {
            "response_type": "code",
            "client_id": provider.client_id,
            "redirect_uri": begun.redirect_uri,
            "scope": " ".join(provider.scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge_of(verifier),
            "code_challenge_method": "S256",
        }
        url = where.authorization_endpoint
        return Departure(f"{url}{'&' if '?' in url else '?'}{urlencode(asked)}", bound)

    async def finish(
        self, name: str, *, state: str, code: str, binding: str
    ) -> tuple[Identity, str]:
        """Who has come back from an issuer, and where he wanted to go."""
        provider = self.providers.named(name)
        kept = await self._begun.take(state)
        if kept is None:
            raise BadState("this sign-in was not begun here, or is over", hint="begin again")
        begun = msgspec.json.decode(kept, type=Begun)
        is_his = hmac.compare_digest(begun.binding, _digest(binding))
        if begun.provider != name or not is_his:
            raise BadState("this sign-in was begun in another browser", hint="begin again")
        if not code:
            raise CodeRefused("the issuer has sent no code", hint="begin again")
        claims = await self._redeemed(
            provider,
            code=code,
            verifier=begun.verifier,
            redirect_uri=begun.redirect_uri,
            nonce=begun.nonce,
        )
        return identity_of(provider, claims), begun.return_to

    async def exchange(
        self, name: str, *, code: str, verifier: str, redirect_uri: str, nonce: str
    ) -> Identity:
        """Who has signed in for a program on his own machine."""
        provider = self.providers.named(name)
        parts = urlsplit(redirect_uri)
        if parts.scheme != "http" or not is_loopback(parts.hostname or ""):
            raise BadState("`redirect_uri` is not on the machine of the caller")
        if not _VERIFIER.match(verifier):
            raise BadState("`code_verifier` has 43..128 characters")
        claims = await self._redeemed(
            provider, code=code, verifier=verifier, redirect_uri=redirect_uri, nonce=nonce
        )
        return identity_of(provider, claims)

    async def identified(self, token: str, domain: str | None) -> tuple[Provider, Identity]:
        """Whom an ID token tells of; nothing leaves for an issuer that is not configured."""
        provider = self.providers.of_domain(domain) if domain else None
        if provider is None:
            provider = self.providers.of_issuer(heading(token)[1].get("iss"))
        claims = await self._issuers[provider.name].checked(token, None)
        return provider, identity_of(provider, claims)

    async def _redeemed(
        self, provider: Provider, *, code: str, verifier: str, redirect_uri: str, nonce: str
    ) -> dict[str, Any]:
        """The claims that the issuer gives for a code."""
        if len(code) > MOST_CHARS or len(redirect_uri) > MOST_CHARS:
            raise CodeRefused("the code is too long")
        issuer = self._issuers[provider.name]
        where = await issuer.endpoints()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "client_id": provider.client_id,
            "code_verifier": verifier,
        }
        answer = await self._posted(issuer, where, form)
        if answer.status >= _SERVER_FAULT:
            raise IssuerUnreachable(f"the issuer of `{provider.name}` fails")
        if answer.status >= _BAD_REQUEST:
            raise CodeRefused("the issuer gives no token for this code", hint="begin again")
        try:
            given = msgspec.json.decode(answer.body, type=_Given)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise BadClaims("the issuer has given no ID token") from None
        return await issuer.checked(given.id_token, nonce)

    async def _posted(self, issuer: Issuer, where: Endpoints, form: dict[str, str]) -> Answer:
        """What the issuer answers; a secret that it takes no longer is asked for anew, once.

        An issuer that does not know us has not looked at the code, which is still good then.
        """
        provider = issuer.provider
        secret = await self._secret(provider)
        answer = await issuer.ask(_token_ask(provider, where, form, secret))
        if not _is_invalid_client(answer):
            return answer
        if provider.client_secret_alias:
            fresh = await self._secret(provider, secret)
            if fresh != secret:
                answer = await issuer.ask(_token_ask(provider, where, form, fresh))
        if _is_invalid_client(answer):
            _log.error(
                "an issuer does not take the secret of the gateway",
                extra={"provider": provider.name},
            )
        return answer

    async def _secret(self, provider: Provider, refused: str = "") -> str:
        """The secret of a provider; empty when it has none."""
        if not provider.client_secret_alias or self._secrets is None:
            return provider.client_secret
        return await self._secrets.of(provider, refused)


def identity_of(provider: Provider, claims: Mapping[str, Any]) -> Identity:
    """Somebody as his issuer tells of him."""
    return Identity(
        issuer=provider.issuer,
        subject=claims["sub"],
        email=_text(claims.get("email")),
        email_verified=claims.get("email_verified") is True,
        display_name=_text(claims.get("name")),
        roles=provider.roles_of(claims),
        auto_provision=provider.auto_provision,
    )


def safe_return(text: str) -> str:
    """A path of our own; whatever may lead elsewhere becomes `/`."""
    if not text.startswith("/") or text[1:2] in {"/", "\\"} or len(text) > MOST_CHARS:
        return "/"
    is_plain = text.isascii() and text.isprintable() and "\\" not in text and " " not in text
    parts = urlsplit(text)
    return text if is_plain and not parts.scheme and not parts.netloc else "/"


def challenge_of(verifier: str) -> str:
    """What a verifier is shown as beforehand (S256)."""
    return _b64(hashlib.sha256(verifier.encode()).digest())


def _token_ask(provider: Provider, where: Endpoints, form: Mapping[str, str], secret: str) -> Ask:
    """The request for a token, with the proof of who we are where the issuer wants it."""
    headers, sent = dict(_FORM), dict(form)
    if secret and "client_secret_basic" in where.token_endpoint_auth_methods_supported:
        headers["authorization"] = _basic(provider, secret)
    elif secret:
        sent["client_secret"] = secret
    return Ask(
        method="POST", url=where.token_endpoint, headers=headers, body=urlencode(sent).encode()
    )


def _is_invalid_client(answer: Answer) -> bool:
    """Whether an issuer says that it does not know us by this secret."""
    if not _BAD_REQUEST <= answer.status < _SERVER_FAULT:
        return False
    try:
        return msgspec.json.decode(answer.body, type=_Fault).error == _INVALID_CLIENT
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


def _basic(provider: Provider, secret: str) -> str:
    pair = f"{quote_plus(provider.client_id)}:{quote_plus(secret)}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _random() -> str:
    return _b64(secrets.token_bytes(_BYTES))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None

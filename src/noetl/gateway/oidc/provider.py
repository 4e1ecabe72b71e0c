"""Sign-in providers: configured by whoever runs the gateway, never taken from a request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from noetl.gateway.cookies import is_loopback
from noetl.gateway.oidc.errors import IssuerNotAllowed, UnknownProvider
from noetl.settings.sources import BadSetting

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ALGORITHMS: Final = ("RS256", "ES256", "EdDSA")
KNOWN: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
"""What a provider may sign with: never `none`, never a key that both sides hold."""
SCOPES: Final = ("openid", "email", "profile")


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """Somebody whose word on who a person is counts here."""

    name: str
    issuer: str
    client_id: str
    audience: str
    client_secret: str = field(default="", repr=False)
    client_secret_alias: str = ""
    """The credential of the server's wallet that holds the secret, in the place of one."""
    scopes: tuple[str, ...] = SCOPES
    algorithms: tuple[str, ...] = ALGORITHMS
    role_claim: str = ""
    role_map: Mapping[str, str] = field(default_factory=dict)
    auto_provision: bool = True
    redirect_uri: str = ""
    """Where it sends people back to; without one it is made from the gateway's own address."""
    tenant: str = "default"

    def __post_init__(self) -> None:
        """Refuse what would let anybody in."""
        parts = urlsplit(self.issuer)
        is_safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(self.host))
        if not is_safe or parts.query or parts.fragment:
            raise BadSetting(f"the issuer of `{self.name}` is no https address")
        if not self.client_id or not self.audience:
            raise BadSetting(f"`{self.name}` needs a client id and an audience")
        if self.client_secret and self.client_secret_alias:
            raise BadSetting(f"`{self.name}` has a client secret and an alias of one")
        if not self.algorithms or not KNOWN.issuperset(self.algorithms):
            raise BadSetting(f"`{self.name}` names algorithms that are not taken")

    @property
    def host(self) -> str:
        """The host of the issuer."""
        return urlsplit(self.issuer).hostname or ""

    def roles_of(self, claims: Mapping[str, Any]) -> tuple[str, ...]:
        """The roles that the claims stand for here, in the order of the map."""
        given: Any = claims
        for part in [self.role_claim] if self.role_claim in claims else self.role_claim.split("."):
            given = given.get(part) if isinstance(given, dict) else None
        words = {given} if isinstance(given, str) else set()
        if isinstance(given, list):
            words = {word for word in given if isinstance(word, str)}
        found = (role for word, role in self.role_map.items() if word in words)
        return tuple(dict.fromkeys(found))


class Providers:
    """All providers of a gateway."""

    def __init__(self, providers: Iterable[Provider] = ()) -> None:
        self._named = {one.name: one for one in providers}

    def __iter__(self) -> Iterator[Provider]:
        return iter(self._named.values())

    def named(self, name: str) -> Provider:
        """The provider of a name."""
        found = self._named.get(name)
        if found is None:
            raise UnknownProvider(f"there is no provider {name[:80]!r}")
        return found

    def of_domain(self, domain: str) -> Provider:
        """The provider whose issuer has this host."""
        asked = domain.strip().lower()
        for one in self:
            parts = urlsplit(one.issuer)
            if asked in {one.host, parts.netloc.lower()}:
                return one
        raise IssuerNotAllowed("the domain is that of no configured issuer")

    def of_issuer(self, issuer: object) -> Provider:
        """The provider of exactly this issuer."""
        for one in self:
            if one.issuer == issuer:
                return one
        raise IssuerNotAllowed("the token is of no configured issuer")

    def shown(self) -> list[dict[str, str]]:
        """What everybody may know of them."""
        return [
            {"name": one.name, "issuer": one.issuer, "client_id": one.client_id} for one in self
        ]

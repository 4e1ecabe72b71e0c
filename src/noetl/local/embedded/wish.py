"""What `noetl up` was asked for; light, because whoever starts a stack may not run it."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from noetl.errors import NoetlError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.settings import StackSettings

POOLS: Final = {"shared": 8, "system": 2}


class BindRefused(NoetlError):
    """An address that others can reach, without what makes that safe."""

    code = "usage"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What `noetl up` was asked for."""

    settings: StackSettings
    pools: Mapping[str, int] = field(default_factory=lambda: POOLS)
    is_insecure: bool = False
    has_gateway: bool = True
    has_pages: bool = True

    def check(self) -> None:
        """Refuse an address that is open to others, unless that was made safe."""
        settings = self.settings
        if is_loopback(settings.host):
            return
        if not (settings.tls_cert and settings.tls_key) and not self.is_insecure:
            raise BindRefused(
                f"The stack would be open to the network on {settings.host} without TLS.",
                hint="set NOETL_TLS_CERT and NOETL_TLS_KEY, or give `--insecure-bind`",
            )
        if not settings.oidc_issuer and not settings.admin_password:
            raise BindRefused(
                f"The stack would be open to the network on {settings.host} without sign-in.",
                hint="set NOETL_ADMIN_PASSWORD_FILE or NOETL_OIDC_ISSUER",
            )


def is_loopback(host: str) -> bool:
    """Whether an address is of this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

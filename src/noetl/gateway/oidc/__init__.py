"""Signing in through issuers: whom is believed, and how a browser goes there and comes back."""

from noetl.gateway.oidc.flow import SignIns
from noetl.gateway.oidc.provider import Provider, Providers

__all__ = ["Provider", "Providers", "SignIns"]

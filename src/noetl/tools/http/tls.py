"""Certificates: who may sign that of a server, and the one that we prove ourselves with."""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noetl.tools.base import ToolError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

FIELDS = ("cert", "key", "passphrase", "ca")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """What a credential of type `tls` holds; nothing of it is ever shown."""

    cert: str = field(default="", repr=False)
    private_key: str = field(default="", repr=False)
    passphrase: str = field(default="", repr=False)
    ca: str = field(default="", repr=False)

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Tls:
        """The certificates among the fields of a credential."""
        cert, key, passphrase, ca = (str(fields.get(name) or "") for name in FIELDS)
        if bool(cert) != bool(key):
            missing = "key" if cert else "cert"
            raise ToolError("auth", "auth_required", f"/auth/{missing}: is needed")
        if not (cert or ca):
            raise ToolError("auth", "auth_required", "/auth/cert: is needed, or `ca`")
        return cls(cert=cert, private_key=key, passphrase=passphrase, ca=ca)

    @property
    def key(self) -> str:
        """The same for the same certificates, and tells none of them."""
        told = repr((self.cert, self.private_key, self.passphrase, self.ca))
        return hashlib.sha256(told.encode()).hexdigest()


def certificates(*, verify: bool, authority: str = "", tls: Tls | None = None) -> ssl.SSLContext:
    """Roots that come along, those of the machine and some more (PEM), or no check at all."""
    import httpx  # noqa: PLC0415 - it takes as long to import as a short local run

    context = httpx.create_ssl_context(verify=verify, trust_env=False)
    if verify:
        context.load_default_certs()
    for text in (authority, "" if tls is None else tls.ca):
        if text:
            try:
                context.load_verify_locations(cadata=text)
            except (OSError, ValueError) as fault:  # an SSLError is the former
                message = "the certificate authority is no certificate in PEM"
                raise ToolError("config", "invalid_config", message) from fault
    if tls is not None and tls.cert:
        _prove(context, tls)
    return context


def _prove(context: ssl.SSLContext, tls: Tls) -> None:
    """Load our own certificate, which OpenSSL reads from files alone."""
    with tempfile.TemporaryDirectory(prefix="noetl-tls-") as folder:  # nobody else may enter it
        cert, key = Path(folder) / "cert.pem", Path(folder) / "key.pem"
        cert.write_text(tls.cert, encoding="utf-8")
        key.write_text(tls.private_key, encoding="utf-8")
        try:  # without a passphrase of ours, OpenSSL would ask for one at the terminal
            context.load_cert_chain(cert, key, lambda: tls.passphrase)
        except (OSError, ValueError):
            message = "/auth: `cert` and `key` are no certificate in PEM with its private key"
            raise ToolError("config", "invalid_config", message) from None

"""Object stores by address and credential: opened once per identity, reached by the guard's rules.

The library connects by itself, so the guard cannot choose the address of a connection. An endpoint
that its author chose must therefore prove its name (TLS), or be an address, or be on the list.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Mapping
from hashlib import sha256
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from noetl.blobs.objects import NoObjectLibrary, open_store
from noetl.tools.auth import fields_of
from noetl.tools.base import ToolError, missing_extra
from noetl.tools.http.egress import SCHEMES, Egress, Guard, denied, host_of, literal
from noetl.tools.objects.failures import failing

if TYPE_CHECKING:
    from noetl.tools.base import ToolContext

__all__ = [
    "MOST_STORES", "Stores", "address_of", "bucket_of", "failing", "key_of", "store_for",
    "stores_of",
]  # fmt: skip

MOST_STORES: Final = 32
TYPES: Final[Mapping[str, tuple[str, ...]]] = {"s3": ("aws", "s3"), "gs": ("gcp", "gcs")}
"""Types of credentials that fit, by the scheme of an address."""
EXTRAS: Final = {"s3": "s3", "gs": "gcs"}
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,220}[A-Za-z0-9]")
_LOOPBACK: Final = IPv4Address("127.0.0.1")


class Stores:
    """The stores that tasks of this process have used lately."""

    def __init__(self, egress: Egress) -> None:
        self.guard = Guard(egress=egress)
        self._open: OrderedDict[str, Any] = OrderedDict()

    async def at(
        self,
        uri: str,
        auth: Any,  # noqa: ANN401 - what the author wrote: an alias, a map, or nothing
        ctx: ToolContext,
        **own: str | None,
    ) -> tuple[Any, str]:
        """The store of an address and the key in it; `endpoint` and `region` of a task win."""
        scheme, bucket, key = address_of(uri)
        fields = await fields_of(auth, ctx, types=TYPES[scheme])
        fields |= {name: value for name, value in own.items() if value}
        _must_identify(scheme, fields)
        for endpoint in _endpoints(fields):
            await self.must_reach(endpoint)
        # Stores hold secrets: the name of one is a digest of what it was opened with.
        told = json.dumps([scheme, bucket, fields], sort_keys=True, default=str)
        name = sha256(told.encode()).hexdigest()
        store = self._open.get(name)
        if store is None:
            store = self._opened(scheme, bucket, fields)
            self._open[name] = store
            if len(self._open) > MOST_STORES:
                self._open.popitem(last=False)
        self._open.move_to_end(name)
        return store, key

    @staticmethod
    def _opened(scheme: str, bucket: str, fields: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a store of obstore
        try:
            return open_store(f"{scheme}://{bucket}", fields)
        except NoObjectLibrary:
            raise missing_extra("gcs" if scheme == "gs" else scheme, EXTRAS[scheme]) from None
        except Exception as fault:  # noqa: BLE001 - the library raises what its parsers raise
            # Its text may hold what was given: a key that cannot be read, for one.
            message = f"/auth: the {scheme} store cannot be opened ({type(fault).__name__}); "
            message += "check the fields of the credential"
            raise ToolError("auth", "bad_credential", message) from None

    async def must_reach(self, endpoint: str) -> None:
        """Refuse an endpoint that its author chose, when the guard does."""
        parts = urlsplit(endpoint)
        egress = self.guard.egress
        try:
            port = parts.port or SCHEMES.get(parts.scheme, 0)
        except ValueError:
            raise denied("port", endpoint) from None
        egress.refuse_url(parts.scheme, bool(parts.username or parts.password), parts.netloc)
        host = host_of(parts.hostname or "")
        await self.guard.addresses(host, port)
        is_listed = egress.refusal(host, port, _LOOPBACK) is None
        if parts.scheme == "http" and not is_listed and literal(host) is None:
            raise denied("plain_http", host)


def _must_identify(scheme: str, fields: Mapping[str, Any]) -> None:
    """Refuse to borrow the worker's own identity at Amazon; that at Google is shown to Google."""
    if scheme == "s3":
        for name in ("access_key_id", "secret_access_key"):
            if not fields.get(name):
                raise ToolError("auth", "auth_required", f"/auth: the credential has no `{name}`")
    elif fields.get("endpoint") and not fields.get("service_account"):
        message = "/auth: an `endpoint` needs a `service_account`; that of the worker is not shown"
        raise ToolError("auth", "auth_required", message)


def _endpoints(fields: Mapping[str, Any]) -> list[str]:
    """Every address that the fields name; one may stand in the JSON of a service account."""
    found = [fields.get("endpoint")]
    account = fields.get("service_account")
    if isinstance(account, str):
        try:
            account = json.loads(account)
        except ValueError:
            raise ToolError(
                "auth", "bad_credential", "/auth: `service_account` is no JSON"
            ) from None
    if isinstance(account, Mapping):
        found += [account.get("gcs_base_url"), account.get("token_uri")]
    return [str(one) for one in found if one]


async def store_for(
    uri: str,
    auth: Any,  # noqa: ANN401 - what the author wrote: an alias, a map, or nothing
    ctx: ToolContext,
    **own: str | None,
) -> tuple[Any, str]:
    """The store of `s3://bucket/key` or `gs://bucket/key` for one task, and the key in it."""
    return await stores_of(ctx).at(uri, auth, ctx, **own)


def stores_of(ctx: ToolContext) -> Stores:
    """The stores of a task; where it was given none, the strictest rules."""
    stores: Stores = ctx.stores if ctx.stores is not None else Stores(Egress())
    return stores


def address_of(uri: str) -> tuple[str, str, str]:
    """Scheme, bucket and key of an address."""
    scheme, _, rest = uri.partition("://")
    bucket, _, key = rest.partition("/")
    if scheme not in TYPES:
        message = f"{scheme[:20]!r} is no scheme of an object store; s3 and gs are"
        raise ToolError("config", "unsupported_scheme", message)
    return scheme, bucket_of(bucket), key_of(key)


def bucket_of(name: str) -> str:
    """The name of a bucket."""
    if not _BUCKET.fullmatch(name):
        raise ToolError("config", "invalid_config", f"/bucket: {name[:80]!r} is no bucket")
    return name


def key_of(key: str, where: str = "/key") -> str:
    """A key that names one object: no `..`, no NUL, no leading slash."""
    is_bad = key.startswith("/") or "\0" in key or any(p in {".", ".."} for p in key.split("/"))
    if is_bad or "//" in key:
        message = f"{where}: a key has no leading `/`, no empty part, no `..` and no NUL"
        raise ToolError("config", "invalid_config", message)
    return key

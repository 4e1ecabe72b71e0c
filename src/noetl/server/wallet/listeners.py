"""What gateways are told of push subscriptions: the document, its state, its secrets sealed."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.api.ingress import IngressListener, IngressListeners
from noetl.dsl.documents.credential_types import secrets_in
from noetl.edge.errors import NotFound
from noetl.secrets.sealed import about_delivery
from noetl.server.fleet.gateways import KIND
from noetl.server.subscriptions.documents import tree_of
from noetl.server.subscriptions.errors import UnknownListener, UnknownSubscription
from noetl.server.subscriptions.hinting import aliases_at_edge

if TYPE_CHECKING:
    from collections.abc import Callable

    from noetl.api.credentials import SealedAnswer
    from noetl.dsl.subscription.document import SubscriptionSpec
    from noetl.server.parts import ServerParts
    from noetl.server.subscriptions.desk import SubscriptionDesk
    from noetl.server.wallet.keychain.resolution import Resolution
    from noetl.server.wallet.sealing import Sealing
    from noetl.store.base import CatalogEntry
    from noetl.store.subscriptions import SubscriptionRow

    Opened = dict[str, tuple[Any, str | None]]
    """Credentials by alias: what is inside, and when it ends by itself."""

DEACTIVATED: Final = "DEACTIVATED"
_DIGITS: Final = 32
_encode: Final = msgspec.json.Encoder(order="sorted").encode


@dataclass(frozen=True, slots=True)
class Found:
    """A listener that was looked up; its secrets are sealed when somebody needs them."""

    tag: str
    """Another one whenever anything of it has changed."""
    told: Callable[[], IngressListener]


class Listeners:
    """Push subscriptions by the names under which senders know them."""

    def __init__(
        self,
        parts: ServerParts,
        desk: SubscriptionDesk,
        resolution: Resolution,
        sealing: Sealing,
    ) -> None:
        self._store = parts.store
        self._seen = parts.seen
        self._key = parts.cursor_key
        self._desk = desk
        self._resolution = resolution
        self._sealing = sealing

    async def waiting(self) -> IngressListeners:
        """The names of those for which deliveries may wait in a spool."""
        found = []
        for row in await self._store.subscriptions.listed():
            if row.listener is None or row.state == DEACTIVATED:
                continue
            _, spec = await self._desk.specs.of(row)
            if spec.spool is None or spec.spool.mode != "off":
                found.append(row.listener)
        return IngressListeners(listeners=tuple(found))

    async def one(self, listener: str, process: str) -> Found:
        """One of them, in whichever state it is, for the gateway of this name alone."""
        row, entry, spec = await self._found(listener)
        with self._sealing.counted():
            key = await self._sealing.key_of(process, KIND)
            opened = await self._opened(row, spec)
        tag = self._tag(row, key, opened)

        def told() -> IngressListener:
            tree = tree_of(entry.content)
            ingress, headers = tree.get("ingress") or {}, tree.get("headers") or {}
            return IngressListener(
                listener=listener,
                catalog_path=row.path,
                tenant_id=row.tenant_id,
                subscription_id=row.subscription_id,
                version=row.version,
                source=spec.source,
                state=row.state,
                document=entry.content,
                etag=tag,
                secrets=self._sealed(listener, process, key, opened),
                verify=ingress.get("verify") or {},
                dispatch=tree.get("dispatch") or {},
                directives=tuple(headers.get("directives") or ()),
                spool=tree.get("spool"),
                dedup=ingress.get("dedup"),
                limits=tree.get("limits"),
            )

        return Found(tag, told)

    async def secrets(self, row: SubscriptionRow, spec: SubscriptionSpec) -> dict[str, Any]:
        """The fields of the credentials of a listener, for the server itself."""
        opened = await self._opened(row, spec)
        for value, _ in opened.values():
            self._seen.add(*secrets_in(value))
        return {alias: value["data"] for alias, (value, _) in opened.items()}

    async def _found(self, listener: str) -> tuple[SubscriptionRow, CatalogEntry, SubscriptionSpec]:
        row = await self._store.subscriptions.listening(listener)
        if row is None:
            raise UnknownListener(f"nobody listens at `{listener[:80]}`")
        try:
            entry, spec = await self._desk.specs.of(row)
        except UnknownSubscription:
            raise UnknownListener(f"the document of `{listener[:80]}` is gone") from None
        return row, entry, spec

    async def _opened(self, row: SubscriptionRow, spec: SubscriptionSpec) -> Opened:
        """Every credential that it names; one that is gone is left out, as after a rotation."""
        found: Opened = {}
        for alias in sorted(aliases_at_edge(spec)):
            try:
                found[alias] = await self._resolution.credential(row.tenant_id, alias)
            except NotFound:
                continue
        return found

    def _sealed(
        self, listener: str, process: str, key: str, opened: Opened
    ) -> dict[str, SealedAnswer]:
        made = {}
        for alias, (value, until) in opened.items():
            about = about_delivery(process, f"ingress:{listener}", alias)
            made[alias] = self._sealing.seal(key, value, about, until)
        return made

    def _tag(self, row: SubscriptionRow, key: str, opened: Opened) -> str:
        """Another one whenever anything has changed; nobody can tell a secret from it."""
        told = (
            row.subscription_id,
            row.catalog_id,
            row.version,
            row.state,
            row.listener,
            key,
            {alias: value for alias, (value, _) in opened.items()},
        )
        return hmac.digest(self._key, _encode(told), "sha256").hex()[:_DIGITS]

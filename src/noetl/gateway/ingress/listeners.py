"""Listeners by name: what the server tells of each, kept for a while, secrets in memory alone."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections import OrderedDict
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Any, ClassVar, Final

from noetl.api.problems import Refused
from noetl.bus import subjects
from noetl.dsl.documents.credential_types import secrets_in
from noetl.dsl.parse import parse
from noetl.dsl.subscription.document import Subscription
from noetl.errors import NoetlError
from noetl.gateway.ingress.challenge import challenge_of, methods_of
from noetl.gateway.ingress.verify import verdict
from noetl.secrets.sealed import CannotOpen, Sealed, about_delivery

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from ipaddress import IPv4Network, IPv6Network

    from noetl.api.client import Client
    from noetl.api.credentials import SealedAnswer
    from noetl.api.ingress import IngressListener
    from noetl.bus.base import Bus
    from noetl.clock import Clock
    from noetl.dsl.subscription.document import SubscriptionSpec
    from noetl.dsl.subscription.ingress import Challenge, Ingress
    from noetl.gateway.ingress.verify.proof import Secrets
    from noetl.secrets.sealed import KeyPair
    from noetl.telemetry.fingerprints import Fingerprints

NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\Z")
FRESH_S: Final = 30.0
STALE_S: Final = 3_600.0
"""How much longer a listener serves while the server is away."""
EARLY_S: Final = 20.0
"""A listener that is used is asked for anew from then on, while it serves."""
AGAIN_S: Final = 5.0
"""How long a server that is away is left alone before the next question for the same name."""
UNKNOWN_S: Final = 10.0
MOST_UNKNOWN: Final = 10_000
MOST_KNOWN: Final = 10_000
ASK_S: Final = 3.0
AT_ONCE: Final = 4
"""Questions for names that are not known, at a time: strangers may not wear the server out."""
MOST_WAITING: Final = 256
_UNKNOWN: Final = "unknown_listener"
_UNREGISTERED: Final = "worker_key_missing"
_log: Final = logging.getLogger(__name__)


class ConfigUnavailable(NoetlError):
    """Nobody can say now whether there is such a listener, or how its deliveries are judged."""

    code = "config_unavailable"
    status: ClassVar[int] = 503
    retryable: ClassVar[bool] = True
    retry_after: ClassVar[float] = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A listener, as deliveries are judged and run by it."""

    listener: str
    path: str
    tenant: str
    subscription_id: str
    version: int
    source: str
    state: str
    """`REGISTERED`, `ACTIVE`, `PAUSED`, `DRAINING` or `DEACTIVATED`."""
    etag: str
    """Another one whenever anything of it has changed, a secret among it."""
    spec: SubscriptionSpec = field(repr=False)
    ingress: Ingress = field(repr=False)
    secrets: Secrets = field(repr=False)
    """The fields of credentials by alias: of the verifier, the handshake and the spool."""
    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    """Who may send; everybody when there is none."""
    challenge: Challenge | None = field(default=None, repr=False)
    methods: tuple[str, ...] = ("POST",)
    proving: verdict.Known = field(repr=False)
    """What deliveries are verified with, but for the keys of an issuer."""

    def allows(self, address: str) -> bool:
        """Whether somebody of this address may send."""
        if not self.networks:
            return True
        try:
            found = ip_address(address)
        except ValueError:
            return False
        return any(found.version == one.version and found in one for one in self.networks)


@dataclass(slots=True, kw_only=True)
class _Kept:
    """A listener as it is remembered; none: there is no such listener."""

    known: Known | None
    asked_at: float
    """When the server has told it."""
    failed_at: float = float("-inf")
    """When the server was asked for it in vain, since then."""
    is_expired: bool = False
    """Something may have been missed: it serves only while nobody can be asked."""


class Listeners:
    """Tells listeners by name, and asks the server as seldom as that may be."""

    def __init__(  # noqa: PLR0913 - its parts, met in one place
        self,
        client: Callable[[], Client],
        *,
        name: str,
        keys: KeyPair,
        seen: Fingerprints,
        clock: Clock,
        bus: Bus,
    ) -> None:
        """`name` is that of this gateway, and `keys` what secrets are sealed to."""
        self._client = client
        self._name = name
        self._keys = keys
        self._seen = seen
        self._clock = clock
        self._bus = bus
        self._known: OrderedDict[str, _Kept] = OrderedDict()
        self._unknown: OrderedDict[str, float] = OrderedDict()
        self._flights: dict[str, asyncio.Task[Known | None]] = {}
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0
        self.on_changed: list[Callable[[str], None]] = []
        """Told the name of a listener that may have changed."""

    def peek(self, name: str) -> Known | None:
        """What is remembered of a listener, however old; nobody is asked."""
        kept = self._known.get(name)
        return None if kept is None else kept.known

    async def of(self, name: str) -> Known | None:
        """A listener; none when there is no such one, `ConfigUnavailable` when nobody can say."""
        kept, now = self._known.get(name), self._clock.monotonic()
        if kept is None:
            if not NAME.match(name) or self._is_unknown(name, now):
                return None
            return await self._first(name)
        age_s = now - kept.asked_at
        if age_s < EARLY_S and not kept.is_expired:
            return kept.known
        may_ask = now - kept.failed_at >= AGAIN_S
        if may_ask and age_s < FRESH_S and not kept.is_expired:
            self._flight(name)
            return kept.known
        return await self._again(name, kept, may_ask=may_ask)

    def drop(self, name: str) -> None:
        """Forget a listener: it has changed."""
        self._known.pop(name, None)
        self._unknown.pop(name, None)
        self._flights.pop(name, None)  # whoever asked before heard of what was before
        for told in self.on_changed:
            told(name)

    async def listen(self) -> None:
        """Hear of listeners that change; what changed while nobody heard is asked for anew."""
        async with self._bus.listen(subjects.INGRESS) as heard:
            for kept in self._known.values():
                kept.is_expired = True
            self._unknown.clear()
            async for told in heard:
                self.drop(told.subject.rpartition(".")[2])

    async def close(self) -> None:
        """End what was asked for."""
        flights = list(self._flights.values())
        self._flights.clear()
        for task in flights:
            task.cancel()
        await asyncio.gather(*flights, return_exceptions=True)

    # ------------------------------------------------------------------ asking

    async def _first(self, name: str) -> Known | None:
        """Ask for a name that nobody has asked for lately; few at a time."""
        flight = self._flights.get(name)
        if flight is not None:
            return await asyncio.shield(flight)
        if self._waiting >= MOST_WAITING:
            raise ConfigUnavailable("too many names are asked for")
        self._waiting += 1
        try:
            async with self._gate:
                now = self._clock.monotonic()
                kept = self._known.get(name)
                if kept is not None:
                    return kept.known
                if self._is_unknown(name, now):
                    return None
                return await asyncio.shield(self._flight(name))
        finally:
            self._waiting -= 1

    async def _again(self, name: str, kept: _Kept, *, may_ask: bool) -> Known | None:
        """Ask for a listener whose time is over; it serves on while the server is away."""
        has_failed = kept.failed_at > kept.asked_at
        if may_ask:
            flight = self._flight(name)
            if not has_failed:  # else it is away, and nobody waits for it
                try:
                    return await asyncio.shield(flight)
                except ConfigUnavailable:
                    pass  # judged below
        if self._clock.monotonic() - kept.asked_at < FRESH_S + STALE_S:
            return kept.known
        raise ConfigUnavailable("the server does not tell how deliveries are judged")

    def _flight(self, name: str) -> asyncio.Task[Known | None]:
        """The one question that is under way for a name."""
        flight = self._flights.get(name)
        if flight is None:
            flight = asyncio.create_task(self._asked(name), name=f"listener-{name}")
            self._flights[name] = flight
            flight.add_done_callback(lambda task: self._landed(name, task))
        return flight

    def _landed(self, name: str, task: asyncio.Task[Known | None]) -> None:
        fault = None if task.cancelled() else task.exception()
        if self._flights.get(name) is not task:
            return  # it was dropped in between
        del self._flights[name]
        now = self._clock.monotonic()
        if task.cancelled() or fault is not None:
            if name in self._known:
                self._known[name].failed_at = now
            return
        found = task.result()
        if found is None:
            self._known.pop(name, None)
            self._note_unknown(name, now)
            return
        self._known[name] = _Kept(known=found, asked_at=now)
        self._known.move_to_end(name)
        while len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)

    async def _asked(self, name: str) -> Known | None:
        known = self.peek(name)
        etag = None if known is None else known.etag
        try:
            async with asyncio.timeout(ASK_S):
                told = await self._client().ingress_listener(name, self._name, etag)
            return known if told is None else self._read(told)
        except Refused as fault:
            if fault.code == _UNKNOWN:
                return None
            # A gateway that has just begun is not known yet; it registers in a moment.
            level = logging.DEBUG if fault.code == _UNREGISTERED else logging.WARNING
            _log.log(level, "a listener is not told", extra={"listener": name, "code": fault.code})
            raise ConfigUnavailable("the server does not tell of the listener") from fault
        except TimeoutError as fault:
            raise ConfigUnavailable("the server did not answer in time") from fault
        except ConfigUnavailable:
            raise
        except NoetlError as fault:
            raise ConfigUnavailable("the server did not answer") from fault

    # ------------------------------------------------------------------ names that are none

    def _is_unknown(self, name: str, now: float) -> bool:
        until = self._unknown.get(name)
        if until is None:
            return False
        if now < until:
            self._unknown.move_to_end(name)
            return True
        del self._unknown[name]
        return False

    def _note_unknown(self, name: str, now: float) -> None:
        self._unknown[name] = now + UNKNOWN_S
        self._unknown.move_to_end(name)
        while len(self._unknown) > MOST_UNKNOWN:
            self._unknown.popitem(last=False)

    # ------------------------------------------------------------------ reading

    def _read(self, told: IngressListener) -> Known:
        model = parse(told.document).model
        spec = model.spec if isinstance(model, Subscription) else None
        if spec is None or spec.ingress is None:
            _log.error(
                "the document of a listener cannot be read", extra={"listener": told.listener}
            )
            raise ConfigUnavailable("the document of the listener cannot be read")
        secrets = {
            alias: self._opened(told.listener, alias, sealed)
            for alias, sealed in told.secrets.items()
        }
        return known_of(told, spec, spec.ingress, secrets)

    def _opened(self, listener: str, alias: str, answer: SealedAnswer) -> Mapping[str, Any]:
        sealed = Sealed(
            alg=answer.alg, v=answer.v, eph_pub=answer.eph_pub, ciphertext=answer.ciphertext
        )
        try:
            found = json.loads(
                self._keys.open(sealed, about_delivery(self._name, f"ingress:{listener}", alias))
            )
        except CannotOpen:
            _log.error(
                "a secret was sealed to somebody else",
                extra={"listener": listener, "alias": alias},
            )  # fmt: skip
            raise ConfigUnavailable("a secret of the listener cannot be opened") from None
        self._seen.add(*secrets_in(found))
        data = found.get("data") if isinstance(found, dict) else None
        fields: Mapping[str, Any] = data if isinstance(data, dict) else found
        return fields


def known_of(
    told: IngressListener, spec: SubscriptionSpec, ingress: Ingress, secrets: Secrets
) -> Known:
    """A listener, from what the server tells and what was sealed."""
    challenge = challenge_of(ingress)
    return Known(
        listener=told.listener,
        path=told.catalog_path,
        tenant=told.tenant_id,
        subscription_id=told.subscription_id,
        version=told.version,
        source=told.source,
        state=told.state,
        etag=told.etag,
        spec=spec,
        ingress=ingress,
        secrets=secrets,
        networks=tuple(ip_network(one) for one in ingress.allow_ips),
        challenge=challenge,
        methods=methods_of(challenge),
        proving=verdict.Known(secrets=secrets, replay_window_s=ingress.replay.window_secs),
    )

"""The gateway: where its parts meet, its routes are named and its loops are kept alive."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, Self

from noetl.api.registering import Registration
from noetl.edge.door import Door
from noetl.gateway.access import Access
from noetl.gateway.cors import Cors
from noetl.gateway.front import Front
from noetl.gateway.gate import Gate
from noetl.gateway.hooks import HookPaths, Hooks
from noetl.gateway.hub import Hub, Pace
from noetl.gateway.ingress.accounts import Accounts
from noetl.gateway.ingress.arriving import Arrivals
from noetl.gateway.ingress.edge import Edges
from noetl.gateway.ingress.listeners import Listeners
from noetl.gateway.limits import Limits
from noetl.gateway.metrics import GatewayMetrics
from noetl.gateway.oidc import Provider, Providers, SignIns
from noetl.gateway.oidc.keyrings import Keyrings
from noetl.gateway.oidc.secrets import ClientSecrets
from noetl.gateway.parts import KIND
from noetl.gateway.peers import Peers
from noetl.gateway.requests import Requests
from noetl.gateway.routes import (
    auth,
    callbacks,
    contract,
    graphql,
    health,
    ingress,
    mcp,
    pages,
    proxy,
    requests,
    rpc,
    sharding,
    sign_in,
    streams,
    tokens,
    users,
)
from noetl.gateway.rpc import Calls
from noetl.gateway.sessions import Sessions
from noetl.gateway.tasks import Tasks
from noetl.gateway.tickets import Tickets
from noetl.gateway.traffic import Traffic
from noetl.intake.audit import ServerPoster
from noetl.settings import BadSetting

if TYPE_CHECKING:
    from types import TracebackType

    from starlette.routing import BaseRoute

    from noetl.gateway.parts import GatewayParts
    from noetl.settings import GatewaySettings

STREAMS_S: Final = 10.0
"""How long the streams of a gateway that stops have to end."""
_log: Final = logging.getLogger(__name__)


class Gateway:
    """One gateway process; `async with` runs its loops."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.routes: tuple[BaseRoute, ...] = (
            *health.routes(gate),
            *contract.routes(gate, lambda: self.routes),
            *(pages.routes(gate) if gate.settings.has_pages else ()),
            *auth.routes(gate),
            *sign_in.routes(gate),
            *tokens.routes(gate),
            *users.routes(gate),
            *streams.routes(gate),
            *rpc.routes(gate),
            *graphql.routes(gate),
            *requests.routes(gate),
            *callbacks.routes(gate),
            *ingress.routes(gate),
            *mcp.routes(gate),
            *sharding.routes(gate),
            *proxy.routes(gate),
        )
        is_https = gate.settings.url.startswith("https://")
        self.asgi = Front(Door(self.routes), gate.cors, gate.traffic, is_https=is_https)
        watched = Door(health.watched(gate))
        self.watched = Front(watched, gate.cors, Traffic(), is_https=is_https)
        """What the metrics bind answers."""

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        await self.stop()

    async def start(self) -> None:
        """Begin the loops."""
        self.gate.tasks.start()

    async def stop(self) -> None:
        """End the loops, now."""
        self.gate.closing.set()
        await self.gate.tasks.stop()
        await self.gate.ingress.close()

    async def end_streams(self, seconds: float = STREAMS_S) -> None:
        """Take on no new streams, and end those that are open, little by little."""
        self.gate.closing.set()
        await self.gate.hub.drain(seconds)

    async def drain(self, seconds: float) -> bool:
        """End streams, and let calls end; whether they did in time."""
        try:
            async with asyncio.timeout(seconds):
                await self.end_streams(min(STREAMS_S, seconds / 2))
                await self.gate.traffic.emptied()
        except TimeoutError:
            return False
        return True


def create_gateway(parts: GatewayParts) -> Gateway:
    """A gateway on the given parts."""
    settings = parts.settings
    metrics = _metrics(settings)
    cors = Cors(
        settings.cors_origins, with_credentials=settings.cors_credentials, own=(settings.url,)
    )
    providers = _providers(settings)
    shared: dict[str, Any] = {
        "bus": parts.bus.bus,
        "upstream": parts.upstream,
        "clock": parts.clock,
        "metrics": metrics,
    }
    hooks = Hooks(
        keys=parts.bus.requests,
        ids=parts.ids,
        gateway_url=settings.callback_url,
        paths=HookPaths(
            login=settings.login_hook, validate=settings.validate_hook, check=settings.access_hook
        ),
        timeout_s=settings.hook_timeout_s,
        is_on=settings.auth_mode == "playbook",
        **shared,
    )
    sessions = Sessions(
        keys=parts.bus.sessions, ttl_s=settings.session_ttl_s, hooks=hooks, **shared
    )
    tickets = Tickets(keys=parts.bus.sessions, sessions=sessions, clock=parts.clock)
    access = Access(
        sessions=sessions,
        tickets=tickets,
        upstream=parts.upstream,
        cors=cors,
        metrics=metrics,
        public_url=settings.public_url,
        takes_query=settings.takes_query_token,
        is_bypassed=settings.is_auth_bypassed,
    )
    hub = Hub(
        bus=parts.bus,
        upstream=parts.upstream,
        clock=parts.clock,
        metrics=metrics,
        pace=_pace(settings),
        replica=parts.name,
    )
    _joined(hub, sessions)
    waiting = Requests(
        keys=parts.bus.requests,
        feed=parts.bus.feed,
        hub=hub,
        upstream=parts.upstream,
        clock=parts.clock,
        ids=parts.ids,
        metrics=metrics,
        seen=parts.seen,
        gateway_url=settings.callback_url,
        ttl_s=settings.request_ttl_s,
        deadline_s=settings.request_deadline_s,
        needs_token=settings.needs_callback_token,
    )
    hub.on_acknowledged = waiting.acknowledged
    limits = Limits(parts.clock, metrics)
    registration = Registration(
        parts.upstream.service,
        parts.name,
        KIND,
        parts.keys,
        uri=settings.callback_url,
        on_machine=parts.on_machine,
    )
    tasks = Tasks(parts.clock, metrics)
    peers = Peers(settings.trusted_proxies)
    tasks.add("sessions", sessions.listen)
    tasks.add("registration", registration.run)
    tasks.add("graphql", graphql.loading)
    tasks.add("shards", lambda: parts.shards.watch(parts.upstream.service().shard_info))
    for name, loop in {**hub.loops(), **waiting.loops()}.items():
        tasks.add(name, loop)
    gate = Gate(
        settings=settings,
        clock=parts.clock,
        ids=parts.ids,
        bus=parts.bus,
        upstream=parts.upstream,
        sessions=sessions,
        tickets=tickets,
        providers=providers,
        sign_ins=SignIns(
            providers, parts.bus.sessions, parts.fetch, parts.clock, ClientSecrets.of_parts(parts)
        ),
        peers=peers,
        hooks=hooks,
        access=access,
        hub=hub,
        requests=waiting,
        calls=Calls(hub=hub, requests=waiting, limits=limits, log=parts.bus.clients),
        registration=registration,
        limits=limits,
        ingress=_ingress(parts, metrics, limits, peers, tasks, registration=registration),
        shards=parts.shards,
        metrics=metrics,
        tasks=tasks,
        cors=cors,
        traffic=Traffic(),
        closing=asyncio.Event(),
        seen=parts.seen,
        keys=parts.keys,
        tracer=parts.tracer,
    )
    return Gateway(gate)


def _ingress(  # noqa: PLR0913 - its parts, met in one place
    parts: GatewayParts,
    metrics: GatewayMetrics,
    limits: Limits,
    peers: Peers,
    tasks: Tasks,
    *,
    registration: Registration,
) -> Arrivals:
    """What takes deliveries, with all that works in its background."""
    client = parts.upstream.service()
    listeners = Listeners(
        parts.upstream.service,
        name=parts.name,
        keys=parts.keys,
        seen=parts.seen,
        clock=parts.clock,
        bus=parts.bus.bus,
    )
    accounts = Accounts(
        poster=ServerPoster(client, parts.name, KIND),
        keep=client.put_deliveries,
        ids=parts.ids,
        clock=parts.clock,
        metrics=metrics,
    )
    edges = Edges.of(parts, listeners.of)
    listeners.on_changed.append(edges.hinted)
    registration.figures = edges.figures
    for series in edges.metrics.series:
        metrics.all.add(series)
    tasks.add("listeners", listeners.listen)
    tasks.add("deliveries", accounts.run)
    tasks.add("edges", edges.run)
    return Arrivals(
        listeners=listeners,
        accounts=accounts,
        keyrings=Keyrings(parts.fetch, parts.clock, metrics.ingress_jwks_refresh.inc),
        limits=limits,
        peers=peers,
        clock=parts.clock,
        metrics=metrics,
        desk=edges,
        most=parts.settings.ingress_most,
        tracer=parts.tracer,
    )


def _metrics(settings: GatewaySettings) -> GatewayMetrics:
    made = GatewayMetrics()
    made.auth_bypass.set(float(settings.is_auth_bypassed), settings.auth_mode)
    for name, is_on in settings.switches.items():
        made.insecure.set(float(is_on), name)
    return made


def _providers(settings: GatewaySettings) -> Providers:
    try:
        return Providers(Provider(**asdict(one)) for one in settings.providers)
    except ValueError as fault:
        raise BadSetting(f"A sign-in provider cannot be used: {fault}.") from None


def _pace(settings: GatewaySettings) -> Pace:
    return Pace(heartbeat_s=settings.heartbeat_s, idle_s=settings.connection_timeout_s)


def _joined(hub: Hub, sessions: Sessions) -> None:
    """Streams last as long as their sessions."""

    async def revoked(session_id: str) -> None:
        hub.close_session(session_id, "revoked")

    hub.still = sessions.look
    sessions.on_revoked.append(revoked)

"""What a listener is to do: as the server says, and as a person has last decided."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from noetl.api.problems import Refused
from noetl.api.subscriptions import STOPPED_BY_ITSELF
from noetl.dsl.parse import parse
from noetl.dsl.subscription.document import Subscription as Document
from noetl.errors import NoetlError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noetl.api.client import Client
    from noetl.api.subscriptions import Action, Subscription
    from noetl.dsl.subscription.document import SubscriptionSpec

Task = Literal["listen", "hold", "drain", "wait"]
"""Fetch; fetch nothing; fetch nothing and end what was begun; do nothing at all."""

LEAVE_S: Final = 5.0
"""How long the server is told at the end that nobody listens any more."""
DRAINED: Final = "drained"
_TASKS: Final[dict[str, Task]] = {"ACTIVE": "listen", "PAUSED": "hold", "DRAINING": "drain"}
_UNKNOWN_CALLER: Final = (401, 403)
_log: Final = logging.getLogger(__name__)


class NotPull(NoetlError):
    """A subscription that no process listens for: its messages are pushed, or come by a timer."""

    code = "subscription.not_continuous"
    status: ClassVar[int] = 422


@dataclass(frozen=True, slots=True, kw_only=True)
class Listened:
    """A version of a subscription, as a listener follows it."""

    subscription_id: str
    path: str
    tenant: str
    version: int
    spec: SubscriptionSpec


def task_of(subscription: Subscription) -> Task:
    """What a state asks for."""
    return _TASKS.get(subscription.state, "wait")


def should_activate(subscription: Subscription) -> bool:
    """Whether a listener that starts sets the subscription going; never against a person."""
    return subscription.desired == "running" and subscription.state != "ACTIVE"


def listened(subscription: Subscription) -> Listened:
    """What to listen for; refused when there is nothing to."""
    model = parse(subscription.content or "").model
    if not isinstance(model, Document):
        raise NotPull(f"{subscription.path} is no Subscription that can be read")
    spec = model.spec
    if spec.mode != "pull" or spec.activation == "scheduled":
        how = "the gateway takes its messages" if spec.mode == "push" else "the server drains it"
        raise NotPull(
            f"nobody listens for {subscription.path}: {how}",
            hint="a listener is for `mode: pull` with `activation: continuous`",
        )
    return Listened(
        subscription_id=subscription.subscription_id,
        path=subscription.path,
        tenant=subscription.tenant_id,
        version=subscription.version,
        spec=spec,
    )


class Steering:
    """The state of one subscription at the server, looked at again and again."""

    def __init__(self, client: Client, path: str) -> None:
        self._client = client
        self._path = path
        self._seen: Subscription | None = None
        self._listened: Listened | None = None
        self.is_unauthorized = False
        """Whether the server does not let us do this."""

    @property
    def seen(self) -> Subscription:
        """The subscription as it was last seen."""
        if self._seen is None:
            raise RuntimeError("the subscription was not looked at")
        return self._seen

    @property
    def task(self) -> Task:
        """What is to be done now."""
        return "wait" if self._seen is None or self.is_unauthorized else task_of(self._seen)

    @property
    def requests(self) -> Sequence[Mapping[str, Any]]:
        """Redrives and discards that were asked for and are not done."""
        return () if self._seen is None else self._seen.pending_actions

    async def start(self) -> Listened:
        """Make the subscription known."""
        known = await self._client.register_subscription(self._path)
        return self._read(await self._client.subscription(known.subscription_id))

    async def activate(self) -> None:
        """Set it going, unless a person has stopped it."""
        if not should_activate(self.seen):
            return
        if self.seen.state == "DRAINING":  # the last listener did not come to its end
            await self._steer("deactivate", STOPPED_BY_ITSELF)
        await self._steer("activate")

    async def look(self) -> Listened:
        """See what it is to be; when the server does not tell, it stays what it was."""
        try:
            found = self._read(await self._client.subscription(self.seen.subscription_id))
        except Refused as fault:
            self.is_unauthorized = fault.problem.status in _UNKNOWN_CALLER or self.is_unauthorized
            _log.warning("the state cannot be seen", extra={"code": fault.code})
        except NoetlError as fault:
            _log.debug("the state cannot be seen", extra={"code": fault.code})
        else:
            self.is_unauthorized = False
            return found
        if self._listened is None:
            raise RuntimeError("the subscription was not looked at")
        return self._listened

    def unauthorized(self) -> None:
        """The server has refused us; nothing is fetched until it tells us the state again."""
        self.is_unauthorized = True

    async def drained(self) -> None:
        """What was begun is done: the subscription stops, as somebody has asked."""
        await self._steer("deactivate", DRAINED)

    async def stop(self) -> None:
        """Nobody listens any more; the next listener goes on, unless a person says otherwise."""
        if self._seen is None:  # the server has never let us see it
            return
        try:
            async with asyncio.timeout(LEAVE_S):
                self._seen = await self._client.subscription(self.seen.subscription_id)
                if self.seen.state != "ACTIVE" or self.seen.runtime.instances > 0:
                    return
                await self._steer("drain", STOPPED_BY_ITSELF)
                await self._steer("deactivate", STOPPED_BY_ITSELF)
        except (NoetlError, TimeoutError):
            _log.warning("the server was not told that nobody listens")

    async def _steer(self, action: Action, reason: str = "") -> None:
        steered = await self._client.steer_subscription(
            self.seen.subscription_id, action, reason or "runtime_started"
        )
        self._seen = steered

    def _read(self, subscription: Subscription) -> Listened:
        known = self._listened
        self._seen = subscription
        if known is None or known.version != subscription.version:
            self._listened = known = listened(subscription)
        return known

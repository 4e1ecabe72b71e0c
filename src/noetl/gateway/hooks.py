"""Sign-in by playbook: the hooks of whoever keeps accounts elsewhere, each with one short wait.

A hook that fails, is late or says what nobody understands lets nobody in.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.api.executions import Control, Execute
from noetl.api.http import NoAnswer
from noetl.api.problems import Refused
from noetl.bus import subjects
from noetl.bus.base import BusGone
from noetl.edge.errors import BadCredentials
from noetl.errors import NoetlError
from noetl.gateway.errors import (
    AuthBackendBusy,
    AuthHookInvalid,
    CallbackTokenMissing,
    CallbackTokenWrong,
)
from noetl.gateway.person import Person
from noetl.ids import random_key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from noetl.bus.base import Bus, Told
    from noetl.bus.keys import Keys
    from noetl.clock import Clock
    from noetl.gateway.metrics import GatewayMetrics
    from noetl.gateway.upstream import Upstream
    from noetl.ids import Ids

POOL: Final = "system"
PLAYBOOK: Final = "playbook"
CANCEL_S: Final = 5.0
KEPT_S: Final = 60.0
_CORNER: Final = "h"
_SYSTEM: Final = "system/"
_KEEPER: Final = "gateway"
"""Who runs a tenant's own playbook."""
_SECRETS: Final = frozenset({"password", "session_token", "auth0_token", "auth0_refresh_token"})
"""What is sealed in the run of a hook, whether its playbook says so or not."""
_REFUSALS: Final = frozenset({"rejected", "denied", "failed", "unauthenticated"})
_log: Final = logging.getLogger(__name__)


class HookUser(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody as a playbook tells of him."""

    user_id: str
    email: str
    display_name: str | None = None
    roles: tuple[str, ...] = ("viewer",)
    tenant: str = "default"


class HookSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session as a playbook tells of it."""

    user: HookUser
    expires_at: str
    session_token: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookPaths:
    """Which playbooks are asked."""

    login: str = "system/auth"
    validate: str = "system/auth"
    check: str = "system/rbac"


class _Waiting(msgspec.Struct, frozen=True, kw_only=True):
    callback_hash: str
    relay: str
    """What another replica shows that passes a callback on; nobody else ever sees it."""


class Hooks:
    """Asks playbooks who somebody is and what he may do."""

    def __init__(  # noqa: PLR0913 - what a hook needs of a gateway
        self,
        *,
        keys: Keys,
        bus: Bus,
        upstream: Upstream,
        clock: Clock,
        ids: Ids,
        metrics: GatewayMetrics,
        gateway_url: str,
        paths: HookPaths | None = None,
        timeout_s: float = 12.0,
        is_on: bool = False,
    ) -> None:
        self.is_on = is_on
        self._keys = keys
        self._bus = bus
        self._upstream = upstream
        self._clock = clock
        self._ids = ids
        self._metrics = metrics
        self._gateway_url = gateway_url
        self._paths = paths or HookPaths()
        self._timeout_s = timeout_s

    async def login(self, given: Mapping[str, Any], tenant: str = "") -> HookSession:
        """A session for somebody; `BadCredentials` when the playbook does not know him."""
        told = await self._asked(self._paths.login, {"action": "login", **given}, tenant)
        if told.get("status") in _REFUSALS:
            raise BadCredentials("the name or the password is wrong")
        if told.get("status") != "authenticated":
            raise _invalid("`status` is none of those that are known")
        made = self._session(told)
        if not made.session_token:
            raise _invalid("`session_token` is missing")
        return made

    async def validate(self, token: str) -> HookSession | None:
        """Whose session it is; none when it is nobody's."""
        asked = {"action": "validate", "session_token": token}
        told = await self._asked(self._paths.validate, asked)
        if told.get("valid") is False or told.get("status") in _REFUSALS:
            return None
        if told.get("valid") is not True:
            raise _invalid("`valid` is neither true nor false")
        return self._session(told)

    async def allows(self, given: Mapping[str, Any], tenant: str = "") -> bool:
        """Whether somebody may do something; whatever is not a clear yes is a no."""
        told = await self._asked(self._paths.check, {"action": "check_access", **given}, tenant)
        return told.get("allowed", told.get("allow")) is True

    async def woken(
        self,
        request_id: str,
        payload: Mapping[str, Any],
        token: str | None = None,
        *,
        is_trusted: bool = False,
    ) -> bool:
        """A playbook has called back; false when no hook waits under this id on any replica.

        `is_trusted` is a caller that has shown the service bearer.
        """
        waiting = await self._waiting(request_id)
        if waiting is None:
            return False
        shown = token or payload.get("callback_token")
        if not is_trusted:
            if not isinstance(shown, str) or not shown:
                raise CallbackTokenMissing("the callback shows no token")
            if not hmac.compare_digest(waiting.callback_hash, _digest(shown)):
                raise CallbackTokenWrong("the token is not that of this request")
        word = {"data": payload.get("data"), "relay": waiting.relay}
        await self._bus.tell(subjects.hook(request_id), msgspec.json.encode(word))
        return True

    async def expects(self, request_id: str, token: str) -> bool:
        """Whether a hook waits under this id, on any replica, and this is its token."""
        waiting = await self._waiting(request_id)
        if waiting is None:
            return False
        return hmac.compare_digest(waiting.callback_hash, _digest(token))

    async def _waiting(self, request_id: str) -> _Waiting | None:
        try:
            entry = await self._keys.get(f"{_CORNER}.{request_id}")
        except (NoetlError, ValueError):
            return None  # whoever waits ends by himself
        return None if entry is None else msgspec.json.decode(entry.value, type=_Waiting)

    # -------------------------------------------------------------------------- asking

    async def _asked(self, path: str, given: dict[str, Any], tenant: str = "") -> dict[str, Any]:
        """What a playbook answers within the time; a late one is cancelled with all it began."""
        request_id, token = random_key(), random_key() + random_key()
        execution_id = self._ids.new()
        waiting = _Waiting(callback_hash=_digest(token), relay=random_key())
        kept = msgspec.json.encode(waiting)
        key, subject = f"{_CORNER}.{request_id}", subjects.hook(request_id)
        workload = {
            **given,
            "request_id": request_id,
            "callback_token": token,
            "gateway_url": self._gateway_url,
            "callback_subject": subject,
        }
        is_begun = False
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._keys.create(key, kept, self._timeout_s + KEPT_S)
                async with self._bus.listen(subject) as heard:
                    is_begun = True
                    await self._begin(path, workload, execution_id, tenant)
                    return await _answer(heard, waiting)
        except TimeoutError:
            if is_begun:
                await self._cancel(execution_id)
            raise AuthBackendBusy("the playbook that signs in has not answered in time") from None
        except (BusGone, Refused, NoAnswer) as fault:
            raise AuthBackendBusy("the playbook that signs in cannot be asked") from fault
        finally:
            await self._let_go(key)

    async def _begin(
        self, path: str, workload: dict[str, Any], execution_id: str, tenant: str
    ) -> None:
        """Start the tenant's own playbook, or that of the platform.

        One of a tenant is looked for in its own catalog and runs with what the tenant may: the
        name comes from whoever wants in, and others can call a playbook of theirs like it.
        """
        request = {
            "request_id": workload["request_id"],
            "delivery": "none",
            "callback_hash": _digest(workload["callback_token"]),
            "secret_inputs": sorted(_SECRETS.intersection(workload)),
        }
        body = Execute(
            path=path,
            workload=workload,
            execution_id=execution_id,
            execution_pool=POOL,
            request=request,
        )
        if tenant and path.startswith(_SYSTEM):
            keeper = Person(user_id=_KEEPER, subject=_KEEPER, roles=("admin",), tenant=tenant)
            own = msgspec.structs.replace(body, path=f"{tenant}/{path}")
            try:
                await self._upstream.acting_for(keeper, execution_id).execute(own)
            except Refused as fault:
                if fault.code != "unknown_path":
                    raise
            else:
                return
        await self._upstream.service(execution_id).execute(body)

    async def _cancel(self, execution_id: str) -> None:
        wish = Control(reason="the sign-in has timed out", cascade=True)
        try:
            async with asyncio.timeout(CANCEL_S):
                await self._upstream.service(execution_id).cancel(execution_id, wish)
        except (NoetlError, TimeoutError) as fault:
            if isinstance(fault, Refused) and fault.code in {"unknown_execution", _ENDED}:
                return
            self._metrics.auth_cancel_failed.inc()
            _log.warning(
                "a hook of sign-in could not be cancelled", extra={"execution_id": execution_id}
            )

    async def _let_go(self, key: str) -> None:
        try:
            async with asyncio.timeout(CANCEL_S):
                await self._keys.delete(key)
        except (NoetlError, TimeoutError):
            self._metrics.kv_errors.inc("requests", "delete")  # it ends by itself

    def _session(self, told: dict[str, Any]) -> HookSession:
        try:
            made = msgspec.convert(told, HookSession, strict=True)
        except msgspec.ValidationError as fault:  # which names the place and never the value
            raise _invalid(str(fault)) from None
        try:
            ends_at = datetime.fromisoformat(made.expires_at)
        except ValueError:
            raise _invalid("`expires_at` is no time") from None
        if ends_at.tzinfo is None or not made.user.user_id or not made.user.email:
            raise _invalid("`expires_at` has no zone, or `user` nobody")
        return made


_ENDED: Final = "already_terminal"


async def _answer(heard: AsyncIterator[Told], waiting: _Waiting) -> dict[str, Any]:
    """The first word of the playbook itself, or of a replica that it has called back."""
    async for told in heard:
        try:
            word = msgspec.json.decode(told.payload, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        token, relay = word.get("callback_token"), word.get("relay")
        is_his = isinstance(token, str) and hmac.compare_digest(
            waiting.callback_hash, _digest(token)
        )
        if is_his or (isinstance(relay, str) and hmac.compare_digest(waiting.relay, relay)):
            data = word.get("data")
            return data if isinstance(data, dict) else {}
    raise BusGone("the bus was closed")


def _invalid(why: str) -> AuthHookInvalid:
    return AuthHookInvalid(
        "the playbook that signs in has answered what nobody understands", hint=why[:200]
    )


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()

"""One connection to a NATS server, from its first byte to its end; it never comes back.

Whoever holds a link makes a new one when it is gone, so that nothing of an old connection is
trusted on a new one. All answers come in on one inbox: a request costs no subscription.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec
from nats.aio.client import Client
from nats.errors import Error, MaxPayloadError, NoServersError

from noetl.bus.base import BusGone, TooLarge
from noetl.bus.streams import ApiFault

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

    from noetl.bus.address import Address

ANSWER_S: Final = 5.0
CONNECT_S: Final = 2
PING_S: Final = 5
CLOSE_S: Final = 2.0
LOOK_S: Final = 1.0
_API: Final = "$JS.API."
_ASK_WHO: Final = "Are user and password right? A broker hangs up on those it does not know."
_NOBODY: Final = "503"
_STATUS: Final = "Status"
_encode: Final = msgspec.json.Encoder().encode


class _Careful(Client):
    """A client whose `flush` is in line with what was sent, and whose end is always told.

    The library writes its PING past what is still to be written, so that a subscription is not
    there yet when `flush` returns; and when the last words fail, it forgets to clean up.
    """

    barrier: Callable[[], Awaitable[None]] | None = None

    async def _close(self, status: int, do_cbs: bool = True) -> None:  # noqa: FBT001, FBT002 - as the library has it
        try:
            await super()._close(status, do_cbs)
        except OSError:  # nothing is left to be sent now: the second time it comes to its end
            self._status = Client.DISCONNECTED
            await super()._close(status, do_cbs)

    async def flush(self, timeout: int = CONNECT_S) -> None:  # noqa: ASYNC109 - as the library has it
        """Wait until the broker has taken all that was sent."""
        if self.barrier is None:
            await super().flush(timeout)
        else:
            await self.barrier()


class Link:
    """A connection: sends, asks, hears, until it is gone."""

    def __init__(self, client: Client, address: Address) -> None:
        self.gone = asyncio.Event()
        self.when_gone: set[Callable[[], None]] = set()
        self._client = client
        self._address = address
        self._asked: dict[str, asyncio.Future[Msg | None]] = {}
        self._parts: dict[str, list[Msg]] = {}
        self._count = 0
        self._inbox = ""
        self._reason: Exception | None = None

    @classmethod
    async def open(cls, address: Address) -> Link:
        """Connect once; `BusGone` when that fails."""
        client = _Careful()
        made = cls(client, address)
        try:
            await client.connect(
                list(address.servers),
                user=address.user or None,
                password=address.password or None,
                token=address.token or None,
                user_credentials=address.creds or None,
                name="noetl",
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=CONNECT_S,
                ping_interval=PING_S,
                error_cb=made._failed,
                closed_cb=made._ended,
                skip_subject_validation=True,
            )
            made._inbox = client.new_inbox()
            await client.subscribe(f"{made._inbox}.*", cb=made._answered)
            client.barrier = made.flush
        except (OSError, Error, TimeoutError) as fault:
            await made.close()
            reason = made._reason if isinstance(fault, NoServersError) else fault
            raise BusGone(
                f"the broker at {address.shown} cannot be reached: {reason}",
                hint=_ASK_WHO if isinstance(fault, ConnectionResetError | Error) else "",
            ) from fault
        except BaseException:
            await made.close()
            raise
        return made

    @property
    def version(self) -> str:
        """What the broker says it is, such as `2.11.3`."""
        return str(self._client._server_info.get("version", ""))  # noqa: SLF001 - as text it is nowhere else

    async def ended(self) -> None:
        """Wait for its end, also for one that nobody was told of."""
        while not self.gone.is_set():
            if not self._client.is_connected:
                await self._ended()
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self.gone.wait()

    async def send(
        self,
        subject: str,
        payload: bytes,
        *,
        reply: str = "",
        headers: dict[str, str] | None = None,
    ) -> None:
        """Send one message; it may get lost with the connection."""
        if self.gone.is_set() or not self._client.is_connected:
            raise self._lost()
        try:
            await self._client.publish(subject, payload, reply, headers)
        except MaxPayloadError as fault:
            raise TooLarge(
                f"a message of {len(payload)} bytes is larger than the broker takes",
                hint=f"Its limit is {self._client.max_payload} bytes.",
            ) from fault
        except (OSError, Error) as fault:
            raise self._lost() from fault

    async def ask(
        self, subject: str, payload: bytes, headers: dict[str, str] | None = None
    ) -> asyncio.Future[Msg | None]:
        """Send a question; the answer, none when the connection ended first."""
        key, answer = self._expect()
        try:
            await self.send(subject, payload, reply=f"{self._inbox}.{key}", headers=headers)
        except BaseException:
            answer.cancel()
            raise
        return answer

    async def ask_all(self, subject: str, payload: bytes) -> list[Msg]:
        """Send a question that is answered in parts; the last of them has a status."""
        key, end = self._expect()
        parts = self._parts[key] = []
        try:
            await self.send(subject, payload, reply=f"{self._inbox}.{key}")
            async with asyncio.timeout(ANSWER_S):
                last = await end
        except TimeoutError as fault:
            raise BusGone(f"the broker did not answer in {ANSWER_S:g} s") from fault
        finally:
            end.cancel()
            del self._parts[key]
        if last is None:
            raise self._lost()
        return [*parts, last]

    async def answered(self, subject: str, payload: bytes, what: str = "") -> Msg:
        """Send a question and wait for its answer."""
        answer = await self.ask(subject, payload)
        try:
            async with asyncio.timeout(ANSWER_S):
                found = await answer
        except TimeoutError as fault:
            raise BusGone(f"the broker did not answer {what} in {ANSWER_S:g} s") from fault
        finally:
            answer.cancel()
        if found is None:
            raise self._lost()
        return found

    async def call(self, verb: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Call the interface for streams and consumers."""
        found = await self.answered(_API + verb, _encode(body) if body else b"", verb)
        if is_nobody(found):
            raise ApiFault(503, 0, "the broker has no JetStream")
        told: dict[str, Any] = msgspec.json.decode(found.data)
        if error := told.get("error"):
            raise ApiFault(error["code"], error.get("err_code", 0), error.get("description", ""))
        return told

    async def hear(self, subject: str, heard: Callable[[Msg], Awaitable[None]]) -> Subscription:
        """Have a function called with what comes in under a subject."""
        if self.gone.is_set() or not self._client.is_connected:
            raise self._lost()
        try:
            return await self._client.subscribe(subject, cb=heard)
        except (OSError, Error) as fault:
            raise self._lost() from fault

    async def unhear(self, subscription: Subscription, *, is_idle: bool = True) -> None:
        """Stop hearing; unless it is idle, what is under way is still heard."""
        if self.gone.is_set() or not self._client.is_connected:
            return
        try:
            if not is_idle:
                await subscription.drain()  # type: ignore[no-untyped-call] # of the library
            else:
                await subscription.unsubscribe()
        except (OSError, Error, BusGone) as fault:
            # The connection ends, and its subscriptions with it.
            await self._failed(fault)

    async def flush(self) -> None:
        """Wait until the broker has taken all that was sent: a word to ourselves comes back."""
        key, answer = self._expect()
        try:
            await self.send(f"{self._inbox}.{key}", b"")
            async with asyncio.timeout(ANSWER_S):
                is_back = await answer is not None
        except TimeoutError as fault:
            raise self._lost() from fault
        finally:
            answer.cancel()
        if not is_back:
            raise self._lost()

    def new_inbox(self) -> str:
        """A subject that nobody else uses."""
        return self._client.new_inbox()

    async def close(self) -> None:
        """End it; whoever waits is let go."""
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._client.close()
        except (OSError, Error, TimeoutError) as fault:
            await self._failed(fault)
        finally:
            await self._ended()

    def _expect(self) -> tuple[str, asyncio.Future[Msg | None]]:
        self._count += 1
        key = str(self._count)
        answer: asyncio.Future[Msg | None] = asyncio.get_running_loop().create_future()
        self._asked[key] = answer
        answer.add_done_callback(lambda _: self._asked.pop(key, None))
        return key, answer

    def _lost(self) -> BusGone:
        reason = f": {self._reason}" if self._reason else ""
        return BusGone(f"the connection to the broker at {self._address.shown} is gone{reason}")

    async def _failed(self, fault: Exception) -> None:
        self._reason = fault

    async def _ended(self) -> None:
        self.gone.set()
        for answer in list(self._asked.values()):
            if not answer.done():
                answer.set_result(None)
        for told in list(self.when_gone):
            told()

    async def _answered(self, msg: Msg) -> None:
        key = msg.subject[len(self._inbox) + 1 :]
        parts = self._parts.get(key)
        if parts is not None and not status(msg):
            parts.append(msg)
            return
        answer = self._asked.get(key)
        if answer is not None and not answer.done():
            answer.set_result(msg)


def status(msg: Msg) -> str:
    """The status of a message that is no message of anybody's; else nothing."""
    return (msg.headers or {}).get(_STATUS, "")


def is_nobody(msg: Msg) -> bool:
    """Whether a question reached nobody."""
    return not msg.data and status(msg) == _NOBODY

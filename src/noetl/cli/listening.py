"""One `noetl subscribe` from its options to its end: document, events, signals, and the runs."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from noetl.cli.failures import CommandFailed, failure_of
from noetl.cli.files import read
from noetl.cli.remote import connected
from noetl.cli.session import credentials_of
from noetl.clock import SystemClock
from noetl.dsl.parse import parse
from noetl.dsl.subscription.document import Subscription
from noetl.errors import NoetlError
from noetl.ids import Ids
from noetl.local.alone import HereEndings, ThereRuns
from noetl.local.credentials import Credentials
from noetl.local.events import STDOUT, EventFile
from noetl.local.parts import Parts
from noetl.local.rooms import Document, Rooms
from noetl.local.subscribe import Job, listened_of, subscribe
from noetl.local.traced import traced
from noetl.local.watch import Watch
from noetl.local.workshop import SLOTS, workshop
from noetl.settings import variable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl.cli.output import Output
    from noetl.dsl.parse import Parsed
    from noetl.intake.dispatch import Starter
    from noetl.local.subscribe import Summary
    from noetl.subscription.ports import Endings
    from noetl.subscription.state import Listened

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_BROKEN: Final = 1


@dataclass(slots=True, kw_only=True)
class Listening:
    """What was asked for."""

    out: Output
    file: str
    is_remote: bool = False
    events: str | None = None
    is_shown: bool = False
    spool_dir: str | None = None
    folder: str | None = None
    credentials: tuple[str, ...] = ()
    most: int | None = None
    is_once: bool = False

    def run(self) -> Summary:
        """Listen to the end."""
        document = self._document()
        known = credentials_of(self.credentials)
        try:
            return asyncio.run(self._main(document, known))
        except NoetlError as fault:
            if fault.code == "subscription.missing_alias":
                raise CommandFailed("usage", fault.message, hint=fault.hint) from fault
            raise failure_of(fault) from fault

    async def _main(self, document: Subscription, known: dict[str, Any]) -> Summary:
        clock = SystemClock()
        ids, stop = Ids(clock), asyncio.Event()
        events = EventFile(
            self._events_file(document),
            ids=ids,
            clock=clock,
            on_line=self._on_line(),
        )
        async with AsyncExitStack() as stack:
            stack.callback(events.close)
            listened = listened_of(document, events.subscription_id)
            starter, endings = await self._runs(stack, listened, events, known)
            job = Job(
                listened=listened,
                events=events,
                starter=starter,
                endings=endings,
                clock=clock,
                ids=ids,
                home=self.out.settings.home,
                spool_dir=None if self.spool_dir is None else Path(self.spool_dir),
                credentials=known,
                is_once=self.is_once,
                most=self.most,
                emulator=variable("PUBSUB_EMULATOR_HOST") or "",
            )
            with _heeding(stop):
                return await subscribe(job, stop)

    async def _runs(
        self, stack: AsyncExitStack, listened: Listened, events: EventFile, known: dict[str, Any]
    ) -> tuple[Starter, Endings]:
        """Who starts runs, and who tells how they end."""
        if self.is_remote:
            there = ThereRuns(await stack.enter_async_context(connected(self.out)), events)
            return there, there
        clock, credentials = SystemClock(), Credentials(known)
        redactor = credentials.redactor()
        folder = Path(self.folder) if self.folder else Path(self.file).parent
        shop = await stack.enter_async_context(workshop(SLOTS))
        tools = await stack.enter_async_context(shop.tools(folder, clock))
        tracer = await stack.enter_async_context(traced(clock, redactor))
        endings = HereEndings()
        parts = Parts(
            watch=Watch(),
            folder=folder,
            tools=tools,
            clock=clock,
            ids=Ids(clock),
            slots=SLOTS,
            redactor=redactor,
            tracer=tracer,
            secrets=credentials.before,
            credentials=credentials.puts(),
        )
        path = listened.path
        document = Document(events.subscription_id, path, self._read().decode("utf-8", "replace"))
        rooms = Rooms(parts, document, on_end=endings.ended, on_event=events.of_run)
        stack.push_async_callback(rooms.close)
        return rooms, endings

    def _read(self) -> bytes:
        return read(self.file).data

    def _document(self) -> Subscription:
        parsed = parse(self._read())
        if parsed.errors or not isinstance(parsed.model, Subscription):
            raise _unusable(self.file, parsed)
        return parsed.model

    def _events_file(self, document: Subscription) -> Path | None:
        if self.events == STDOUT:
            return None
        return Path(self.events or f"{document.metadata.name}-events.jsonl")

    def _on_line(self) -> Any:  # noqa: ANN401 - a function, or none
        if self.is_shown and self.events != STDOUT:
            return lambda line: self.out.note(line.decode())
        return None


def _unusable(file: str, parsed: Parsed) -> CommandFailed:
    if not parsed.errors:
        hint = "`noetl subscribe` takes `kind: Subscription`"
        return CommandFailed("usage", f"`{file}` is of kind {parsed.kind or '?'}", hint=hint)
    first = parsed.errors[0]
    message = f"`{file}` cannot be used: {first.code}: {first.message}"
    return CommandFailed("usage", message, hint=f"`noetl validate {file}` shows all of it")


@contextmanager
def _heeding(stop: asyncio.Event) -> Iterator[None]:
    """The first signal ends it in good order, the second one at once."""
    loop = asyncio.get_running_loop()

    def heed() -> None:
        if stop.is_set():
            os._exit(_BROKEN)
        stop.set()

    for number in _SIGNALS:
        loop.add_signal_handler(number, heed)
    try:
        yield
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

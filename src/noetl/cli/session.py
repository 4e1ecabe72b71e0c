"""One `noetl run` from the options to its end: log, view, signals, and the run itself."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import closing as closing_of
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from noetl.cli.failures import EXIT_OF_STATUS, CommandFailed, failure_of
from noetl.cli.follow import follower
from noetl.cli.inputs import document, pair
from noetl.cli.text import json_line
from noetl.clock import SystemClock
from noetl.engine.rows import to_row
from noetl.errors import NoetlError
from noetl.ids import Ids
from noetl.local.credentials import Credentials
from noetl.local.journal import Journal, read
from noetl.local.keychain import StandIns
from noetl.local.launch import Job, check_same, finish, root_of, start
from noetl.local.mocks import Mocks
from noetl.local.parts import Parts
from noetl.local.references import MOST_OUTPUT
from noetl.local.run import stack
from noetl.local.traced import traced
from noetl.local.watch import Watch
from noetl.local.workshop import SLOTS, workshop
from noetl.settings import variable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl.cli.files import Source
    from noetl.cli.follow import Follower
    from noetl.cli.output import Output
    from noetl.dsl.playbook import Playbook
    from noetl.engine.events import PlaybookStarted, Recorded
    from noetl.local.launch import Finished

HOME: Final = Path(".noetl")
_TIMED_OUT: Final = 8
_SIGNALS: Final = {signal.SIGINT: 130, signal.SIGTERM: 143}


@dataclass(frozen=True, slots=True)
class Resumed:
    """The log of a run that was cut short."""

    path: Path
    events: list[Recorded]
    root: PlaybookStarted

    @property
    def file(self) -> str:
        """The playbook that it names."""
        return str(self.root.trigger.get("file", ""))


def resumed(name: str) -> Resumed:
    """Read the log that `--resume` names."""
    path = Path(name)
    try:
        events = read(path)
    except FileNotFoundError as fault:
        raise CommandFailed("file_not_found", f"there is no file `{name}`") from fault
    except OSError as fault:
        message = f"`{name}` cannot be read: {fault.strerror}"
        raise CommandFailed("file_unreadable", message) from fault
    except NoetlError as fault:
        raise failure_of(fault) from fault
    return Resumed(path, events, root_of(events))


@dataclass(slots=True, kw_only=True)
class Session:
    """What was asked for."""

    out: Output
    source: Source
    playbook: Playbook
    payload: dict[str, Any]
    events: str | None = None
    log: Resumed | None = None
    timeout_s: float | None = None
    slots: int | None = None
    folder: str | None = None
    credentials: tuple[str, ...] = ()
    mock: str | None = None
    most_output: int | None = None
    signal_code: int = 0

    def run(self) -> Finished:
        """Run to the end."""
        try:
            return asyncio.run(self._main())
        except NoetlError as fault:
            raise failure_of(fault) from fault

    def exit_code(self, finished: Finished) -> int:
        """The exit code of the process."""
        if finished.ending == "stopped":
            return self.signal_code
        return _TIMED_OUT if finished.ending == "timeout" else EXIT_OF_STATUS[finished.run.status]

    async def _main(self) -> Finished:
        clock = SystemClock()
        ids = Ids(clock)
        text = self.source.data.decode("utf-8", "replace")
        name = ids.new()
        if self.log is not None:
            check_same(self.log.root, self.source.name, text)
            name = self.log.root.execution_id
        stop = asyncio.Event()
        journal = self._journal(name)
        beside = Path(self.source.name).parent if self.source.path else Path()
        folder = Path(self.folder) if self.folder else beside
        names = [step.name for step in self.playbook.workflow]
        job = Job(
            file=self.source.name,
            text=text,
            payload=self.payload,
            timeout_s=self.timeout_s,
            most_output=MOST_OUTPUT if self.most_output is None else self.most_output,
        )
        slots = self.slots or SLOTS
        closing = nullcontext() if journal is None else closing_of(journal)
        with closing, follower(self.out, clock, names) as view, self._signals(stop):
            watch = Watch(journal, lambda recorded: self._see(view, recorded))
            log = () if self.log is None else self.log.events
            for recorded in log:
                view.known(recorded)
            mocks = self._mocks()
            credentials = Credentials(credentials_of(self.credentials))
            redactor = credentials.redactor()
            async with (
                workshop(slots) as shop,
                shop.tools(folder, clock) as tools,
                traced(clock, redactor) as tracer,
            ):
                parts = Parts(
                    watch=watch,
                    folder=folder,
                    home=HOME,
                    tools=tools if mocks is None else mocks.over(tools),
                    on_worker=frozenset() if mocks is None else mocks.steps,
                    is_complete=mocks is None,
                    clock=clock,
                    ids=ids,
                    slots=slots,
                    redactor=redactor,
                    tracer=tracer,
                    secrets=credentials.before if mocks is None else StandIns,
                    credentials=credentials.puts(),
                    log=log,
                    on_line=view.line if self.out.verbosity else None,
                )
                async with stack(parts, text) as running:
                    if mocks is not None:
                        mocks.crash = running.crew.crash
                    if self.log is None:
                        await start(running, job, name)
                    return await finish(running, job, stop)

    def _journal(self, execution_id: str) -> Journal | None:
        if self.events == "-":
            return None
        if self.log is not None:
            return Journal(self.log.path)
        return Journal(Path(self.events or HOME / "runs" / f"{execution_id}.jsonl"))

    def _mocks(self) -> Mocks | None:
        if self.mock is None:
            return None
        from noetl.cli.mocking import case_of

        return Mocks(case_of(self.mock).mocks, Path(self.mock).parent, allow=None)

    def _see(self, view: Follower, recorded: Recorded) -> None:
        view.take(recorded)
        if self.events == "-":
            self.out.write(json_line(to_row(recorded)))

    @contextmanager
    def _signals(self, stop: asyncio.Event) -> Iterator[None]:
        """The first signal cancels the run; the handler is gone then, so the second one kills."""
        loop = asyncio.get_running_loop()

        def heed(number: signal.Signals) -> None:
            self.signal_code = _SIGNALS[number]
            stop.set()
            for each in _SIGNALS:
                loop.remove_signal_handler(each)
                signal.signal(each, signal.SIG_DFL)

        for number in _SIGNALS:
            loop.add_signal_handler(number, heed, number)
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)


def credentials_of(words: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """The credentials that `--credential` names: each in a file, or in a variable."""
    known = {}
    for word in words:
        name, file = pair("--credential", word)
        known[name] = _of_environment(name, file) or _of_file(name, file)
    return known


def _of_file(name: str, file: str) -> dict[str, Any]:
    """A credential that a file holds: its fields, or a document of kind Credential."""
    found = document(file, f"--credential {name}")
    if found.get("kind") != "Credential":
        return found
    spec = found.get("spec")
    if not isinstance(spec, dict) or not isinstance(spec.get("data"), dict):
        message = f"`--credential {name}={file}`: the document has no `spec.data`"
        raise CommandFailed("usage", message, hint="a run on this machine reads no other source")
    return {"type": spec.get("type"), "data": spec["data"]}


def _of_environment(name: str, source: str) -> dict[str, Any] | None:
    """A credential that a variable holds: a map as JSON, or one secret."""
    head, _, key = source.partition("env:")
    if head or not key:
        return None
    text = variable(key)
    if text is None:
        message = f"`--credential {name}=env:{key}`: the variable {key} is not set"
        raise CommandFailed("usage", message, hint=f"export {key}=...")
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"type": "secret", "value": text}

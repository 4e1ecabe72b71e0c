"""`noetl up`: one embedded stack from nothing to ready, and to its end."""

from __future__ import annotations

import asyncio
import shutil
import signal
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Final

from noetl import __version__
from noetl.clock import SystemClock, rfc3339
from noetl.errors import NoetlError
from noetl.local.embedded import plan, record
from noetl.local.embedded.children import Bus, Database
from noetl.local.embedded.home import Home
from noetl.local.embedded.listening import Listeners
from noetl.local.embedded.logs import Logs
from noetl.local.embedded.ports import PortInUse, claim_port
from noetl.local.embedded.sign_in import login_url
from noetl.local.embedded.stopping import stop_parts
from noetl.local.embedded.supervisor import NAME, Supervisor, me
from noetl.local.nats import Nats

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

    from noetl.local.embedded.children import Process
    from noetl.local.embedded.wish import Wish

_ADMIN: Final = "noetl.server.admin"
_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class AlreadyUp(NoetlError):
    """Another stack runs in the same folder."""

    code = "stack_running"
    status = 409


async def up(
    wish: Wish,
    show: Callable[[str, str], None],
    on_ready: Callable[[record.Stack, str], None],
    *,
    is_reset: bool = False,
) -> None:
    """Run a stack until a signal ends it; `show` gets every line, with the part that said it.

    `on_ready` gets the record, and the address that signs its admin in once.
    """
    wish.check()
    home = Home(wish.settings.home)
    home.make()
    with home.locked() as is_ours:
        if not is_ours:
            raise AlreadyUp(f"A stack runs in {home.path}.")
        repair(home)
        if is_reset:
            wipe(home)
            home.make()
        logs = Logs(home, show)
        try:
            await _run(wish, home, logs, on_ready)
        finally:
            logs.close()


def repair(home: Home) -> None:
    """Stop what a stack that was killed left behind."""
    left = record.read(home.record)
    if left is not None:
        stop_parts(left)
    home.record.unlink(missing_ok=True)


def wipe(home: Home) -> None:
    """Delete all data of a stack that does not run."""
    home.wipe()
    for place in plan.places(home):
        shutil.rmtree(place, ignore_errors=True)


async def _run(
    wish: Wish, home: Home, logs: Logs, on_ready: Callable[[record.Stack, str], None]
) -> None:
    ending = asyncio.Event()
    keys = plan.Keys(home, tuple(wish.pools))
    keys.make()
    at = _addresses(wish)
    supervisor = Supervisor(home, _first(wish, home, at), logs, SystemClock())
    with _heeding(ending):
        try:
            await supervisor.open()
            starting = _start(supervisor, wish, home, logs, keys, at)
            await supervisor.unless_broken(_either(starting, ending))
            if not ending.is_set():
                supervisor.ready()
                logs.line(NAME, f"ready: {at.gateway or at.server}")
                on_ready(supervisor.stack, await login_url(supervisor.stack))
                async with _listeners(supervisor, wish, home, logs, keys, at):
                    await supervisor.unless_broken(ending.wait())
        finally:
            await supervisor.stop()


async def _start(  # noqa: PLR0913, PLR0917 - everything meets here
    supervisor: Supervisor,
    wish: Wish,
    home: Home,
    logs: Logs,
    keys: plan.Keys,
    at: plan.Addresses,
) -> None:
    """Start side by side what does not need each other."""

    def said(part: str) -> Callable[[str], None]:
        return lambda line: logs.line(part, line)

    async with asyncio.TaskGroup() as group:
        group.create_task(_database(supervisor, wish, home, keys, said("postgres")))
        group.create_task(_bus(supervisor, wish, home, keys, said("nats")))
    async with asyncio.TaskGroup() as group:
        # Workers and the gateway join as soon as the server answers: they are told to wait for it.
        group.create_task(supervisor.start(plan.server(home, wish, at, said("server"))))
        if wish.has_gateway:
            group.create_task(supervisor.start(plan.gateway(home, wish, at, said("gateway"))))
        for pool, slots in wish.pools.items():
            worker = plan.worker(home, wish, at, pool, slots, said(f"worker-{pool}"))
            group.create_task(supervisor.start(worker))


@asynccontextmanager
async def _listeners(  # noqa: PLR0913, PLR0917 - as above
    supervisor: Supervisor,
    wish: Wish,
    home: Home,
    logs: Logs,
    keys: plan.Keys,
    at: plan.Addresses,
) -> AsyncIterator[None]:
    """A listener for every subscription that is to listen."""

    def make(name: str, path: str) -> Process:
        return plan.listener(home, wish, at, name, path, lambda line: logs.line(name, line))

    token = keys.read(plan.ADMIN_TOKEN)
    listening = asyncio.create_task(Listeners(at.server, token, supervisor, make).run())
    try:
        yield
    finally:
        listening.cancel()
        await asyncio.wait((listening,))


async def _database(
    supervisor: Supervisor, wish: Wish, home: Home, keys: plan.Keys, said: Callable[[str], None]
) -> None:
    """The database, up to date, with everybody who may talk to the server."""
    url = wish.settings.database_url
    if not url:
        postgres = Database(home.folder("pg") / "data", said)
        async with asyncio.TaskGroup() as group:
            group.create_task(supervisor.start(postgres))
            group.create_task(asyncio.to_thread(import_module, _ADMIN))
        url = postgres.url
    from noetl.server import admin  # noqa: PLC0415 - read while the database starts

    home.keep(plan.DATABASE_URL, url)
    await admin.migrate(url)
    await admin.welcome(url, keys.bearers())
    if wish.settings.admin_password:
        await admin.give_password(url, plan.ADMIN, wish.settings.admin_password)


async def _bus(
    supervisor: Supervisor, wish: Wish, home: Home, keys: plan.Keys, said: Callable[[str], None]
) -> None:
    """The broker, and its address where every part finds it."""
    url = wish.settings.nats_url
    if not url:
        nats = Nats(
            directory=home.folder("nats"), user=plan.BUS_USER, password=keys.read(plan.BUS_PASSWORD)
        )
        await supervisor.start(Bus(nats=nats, said=said, data_dir=str(nats.directory)))
        url = nats.url
    home.keep(plan.NATS_URL, url)


async def _either(starting: Coroutine[object, object, None], ending: asyncio.Event) -> None:
    """Start, unless the end is asked for before that is done."""
    started, ended = asyncio.create_task(starting), asyncio.create_task(ending.wait())
    try:
        await asyncio.wait((started, ended), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (started, ended):
            task.cancel()
        await asyncio.wait((started, ended))
    if not started.cancelled():
        _raise_first(started.exception())


def _raise_first(fault: BaseException | None) -> None:
    """Raise what went wrong first; the rest only followed from it."""
    while isinstance(fault, BaseExceptionGroup):
        fault = fault.exceptions[0]
    if fault is not None:
        raise fault


def _addresses(wish: Wish) -> plan.Addresses:
    """Where the parts are to be; refused when a port is taken."""
    settings = wish.settings
    port = claim_port(settings.host, settings.port)
    gateway_port = 0
    while wish.has_gateway and gateway_port in {0, port}:
        gateway_port = claim_port(settings.host, settings.gateway_port, "--port")
        if gateway_port == port == settings.gateway_port:
            raise PortInUse(f"Port {port} was asked for twice: for the server and the gateway.")
    return plan.Addresses(
        host=settings.host,
        port=port,
        scheme="https" if settings.tls_cert else "http",
        nats=settings.nats_url,
        gateway_port=gateway_port,
    )


def _first(wish: Wish, home: Home, at: plan.Addresses) -> record.Stack:
    pid, started = me()
    return record.Stack(
        version=__version__,
        home=str(home.path),
        state=record.STARTING,
        url=at.server,
        pid=pid,
        started=started,
        started_at=rfc3339(SystemClock().now()),
        database_url_file=str(home.secret_file(plan.DATABASE_URL)),
        nats_url=at.nats,
        token_file=str(home.secret_file(plan.ADMIN_TOKEN)),
        gateway_url=at.gateway,
        public_url=wish.settings.public_url,
        has_pages=wish.has_pages,
    )


@contextmanager
def _heeding(ending: asyncio.Event) -> Iterator[None]:
    """Signals ask for the end; a second one changes nothing, the end is under way."""
    loop = asyncio.get_running_loop()
    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, ending.set)
    try:
        yield
    finally:
        for number in _STOP_SIGNALS:
            loop.remove_signal_handler(number)

"""Starts runs on a server, and waits for one of them."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import typer

from noetl.api.catalog import Register
from noetl.api.executions import Execute
from noetl.api.plain import plain
from noetl.cli.failures import EXIT_OF_STATUS, CommandFailed
from noetl.cli.files import read
from noetl.cli.inputs import Inputs, pair, payload_of
from noetl.cli.listing import show_one
from noetl.cli.references import playbook_of
from noetl.cli.remote import ask
from noetl.cli.text import visible
from noetl.ids import random_key

if TYPE_CHECKING:
    from noetl.api.client import Client
    from noetl.api.executions import Started
    from noetl.cli.output import Output

PRIORITY: Final = 5
_KEY: Final = re.compile("[!-~]{1,200}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What is to be started, and whether its end is waited for."""

    ref: str
    inputs: Inputs
    version: str | None = None
    pool: str | None = None
    priority: int | None = None
    labels: tuple[str, ...] = ()
    key: str | None = None
    start_at: str | None = None
    is_dry: bool = False
    is_awaited: bool = False
    is_followed: bool = False
    timeout_s: float | None = None
    most_output: int | None = None


@dataclass(slots=True)
class _Begun:
    """What is known of the run when the waiting ends early."""

    execution_id: str = ""


def start(out: Output, wanted: Start) -> None:
    """Start a run; show that it was accepted, or what came of it."""
    if wanted.key is not None and not _KEY.fullmatch(wanted.key):
        hint = "1 to 200 visible characters of ASCII"
        raise CommandFailed("usage", "`--idempotency-key` is not a key", hint=hint)
    if wanted.is_dry and wanted.is_awaited:
        message = "a dry run has no end to wait for"
        raise CommandFailed("usage", message, hint="leave `--wait` or `--dry-run` out")
    payload = payload_of(wanted.inputs)
    labels = dict(pair("--label", word) for word in wanted.labels)
    begun = _Begun()

    async def work(client: Client) -> None:
        body = await _body(out, client, wanted, payload, labels)
        if wanted.is_dry:
            _show_rehearsed(out, wanted, plain(await client.rehearse(body)))
            return
        started = await client.execute(body)
        begun.execution_id = started.execution_id
        if not wanted.is_awaited:
            # Of a key that was made here nobody else can have started a run.
            status = started.status if wanted.key else "started"
            _show_started(out, {**plain(started), "status": status})
            return
        raise typer.Exit(await _awaited(out, client, wanted, started))

    # With a key a request that a busy server turned away is safely sent again.
    try:
        ask(out, work, {"idempotency-key": wanted.key or f"noetl-exec-{random_key()}"})
    except KeyboardInterrupt:
        if not begun.execution_id:
            raise
        raise _goes_on(begun.execution_id, "interrupted", "stopped waiting") from None


def _goes_on(execution_id: str, code: str, message: str) -> CommandFailed:
    hint = f"follow it with `noetl executions events {execution_id} -f`"
    details = {"execution_id": execution_id}
    text = f"{message}; execution {execution_id} goes on"
    return CommandFailed(code, text, hint=hint, details=details)


async def _body(
    out: Output, client: Client, wanted: Start, payload: dict[str, Any], labels: dict[str, str]
) -> Execute:
    """What the server is asked for; a file is registered on the way."""
    playbook = await playbook_of(client, wanted.ref, wanted.version)
    catalog_id = playbook.catalog_id
    if playbook.file is not None:
        if wanted.is_dry:
            message = "a file would be registered first, which a dry run does not do"
            hint = f"register it, or `noetl run {playbook.file} --dry-run`"
            raise CommandFailed("usage", message, hint=hint)
        text = read(playbook.file).data.decode("utf-8", "replace")
        entry = await client.register(Register(content=text))
        catalog_id = entry.catalog_id
        if entry.changed:
            out.note(f"registered {visible(entry.path)}@{entry.version}")
    return Execute(
        path=playbook.path,
        catalog_id=catalog_id,
        version=playbook.version,
        payload=payload or None,
        execution_pool=wanted.pool,
        labels=labels,
        priority=PRIORITY if wanted.priority is None else wanted.priority,
        start_at=_start_at(wanted.start_at),
    )


def _start_at(text: str | None) -> str | None:
    from noetl.cli.times import moment
    from noetl.clock import SystemClock

    return None if text is None else moment("--start-at", text, SystemClock().now(), is_ahead=True)


def _show_rehearsed(out: Output, wanted: Start, found: dict[str, Any]) -> None:
    """What a dry run found; a run that would not start ends with 7."""
    if found["valid"]:
        show_one(out, found, f"playbook/{wanted.ref}")
        return
    first = found["problems"][0] if found["problems"] else {}
    message = str(first.get("detail") or first.get("message") or "the run would be refused")
    raise CommandFailed("invalid_workload", message, details=found)


async def _awaited(out: Output, client: Client, wanted: Start, started: Started) -> int:
    """Wait for the end and show it; the exit code."""
    from noetl.cli.awaited import ended, show_run

    try:
        async with asyncio.timeout(wanted.timeout_s):
            run = await ended(
                out,
                client,
                started.execution_id,
                catalog_id=started.catalog_id,
                is_followed=wanted.is_followed,
                most_output=wanted.most_output,
            )
    except TimeoutError:
        message = f"not done within {wanted.timeout_s:g} s"
        raise _goes_on(started.execution_id, "wait_timeout", message) from None
    show_run(out, run)
    return EXIT_OF_STATUS[run.status]


def _show_started(out: Output, started: dict[str, Any]) -> None:
    execution_id = started["execution_id"]
    if out.format == "table":
        playbook = f"{visible(started['path'])}@{started['version']}"
        out.line(f"{execution_id}  {playbook}  {started['status']}")
        out.note(f"follow it with `noetl executions events {execution_id} -f`")
    else:
        show_one(out, started, f"execution/{execution_id}")

"""Events and lines of a run of a server, also those that are still to come."""

from __future__ import annotations

from collections import deque
from contextlib import aclosing
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from noetl.cli.awaited import ended, show_run
from noetl.cli.failures import CommandFailed
from noetl.cli.references import execution_of
from noetl.cli.remote import ask
from noetl.cli.text import json_line, visible
from noetl.cli.waiting import rows, told

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from noetl.api.client import Client
    from noetl.cli.output import Output

_PAGE: Final = 1000
_PLACE: Final = ("ts", "command_id", "attempt", "n")
"""What the id of a line in a stream is made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which events are shown."""

    types: tuple[str, ...] = ()
    step: str | None = None
    after: int = 0

    @property
    def is_all(self) -> bool:
        """Whether nothing is left out."""
        return self == Wanted()

    def filters(self) -> dict[str, Any]:
        """As the server's list takes them."""
        return {"event_type": list(self.types) or None, "step": self.step}

    def fits(self, row: dict[str, Any]) -> bool:
        """Whether an event of a stream is one of them."""
        name = row["event_type"]
        is_type = not self.types or any(fnmatchcase(name, word) for word in self.types)
        return is_type and self.step in {None, row["step"]} and row["seq"] > self.after


def follow_events(out: Output, word: str, wanted: Wanted) -> None:
    """Show the events of a run until it has ended: as a tree, or each as it is."""
    if out.format == "table" and wanted.is_all:
        _heeding(out, word, lambda client, name: _tree(out, client, name))
    else:
        _heeding(out, word, lambda client, name: _stream(out, client, name, wanted))


def _heeding(
    out: Output, word: str, watch: Callable[[Client, str], Coroutine[None, None, None]]
) -> None:
    """Watch a run; an interrupt ends the watching and says how to go on with it."""
    known = ""

    async def work(client: Client) -> None:
        nonlocal known
        known = await execution_of(client, word)
        await watch(client, known)

    try:
        ask(out, work)
    except KeyboardInterrupt:
        if not known:
            raise
        hint = f"look again with `noetl executions events {known} -f`"
        message = f"stopped watching execution {known}"
        raise CommandFailed("interrupted", message, hint=hint) from None


async def _tree(out: Output, client: Client, execution_id: str) -> None:
    found = await client.execution(execution_id, with_state=False)
    run = await ended(out, client, execution_id, catalog_id=found.catalog_id, is_followed=True)
    show_run(out, run)


async def _stream(out: Output, client: Client, execution_id: str, wanted: Wanted) -> None:
    kept: list[dict[str, Any]] = []
    async with aclosing(rows(client, execution_id)) as found:
        async for row in found:
            if not wanted.fits(row):
                continue
            if out.format in {"json", "yaml"}:
                kept.append(row)  # one document, which is whole at the end
            else:
                _write_event(out, row)
    if out.format in {"json", "yaml"}:
        out.items(kept)


def _write_event(out: Output, row: dict[str, Any]) -> None:
    if out.format == "jsonl":
        out.write(json_line(row))
    elif out.format == "name":
        out.line(f"event/{row['event_id']}")
    else:
        error = row.get("error") or {}
        ended = f"  {error.get('kind')}: {error.get('message')}" if error else ""
        words = (str(row["seq"]), row["created_at"], row["event_type"], row["step"], row["status"])
        out.line(visible("  ".join(words) + ended))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Which lines are shown."""

    step: str | None = None
    since: str | None = None
    tail: int | None = None
    is_followed: bool = False

    def filters(self) -> dict[str, Any]:
        """As the server's list takes them."""
        return {"step": self.step, "since": self.since, "limit": _PAGE}


def show_lines(out: Output, word: str, wanted: Lines) -> None:
    """Show the lines of a run; with a follower's patience until it has ended."""
    _heeding(out, word, lambda client, name: _lines(out, client, name, wanted))


async def _lines(out: Output, client: Client, execution_id: str, wanted: Lines) -> None:
    kept: list[dict[str, Any]] = []
    is_document = out.format in {"json", "yaml"}
    put = kept.append if is_document else partial(_write_line, out)
    # Whether it has ended is asked first: what was written until then is read afterwards.
    is_over = not wanted.is_followed or (await client.status(execution_id)).is_terminal
    first: deque[dict[str, Any]] = deque(maxlen=wanted.tail)
    place: str | None = None
    async for line in _read(client, execution_id, wanted.filters()):
        first.append(line)
        place = "|".join(str(line[key]) for key in _PLACE)
    for line in first:
        put(line)
    if not is_over:
        asked = {name: value for name in ("step", "since") if (value := getattr(wanted, name))}
        opened = partial(client.log_stream, execution_id, **asked)
        async with aclosing(told(lambda since: opened(since=since), place, is_met=True)) as lines:
            async for one in lines:
                put(one["data"])
    if is_document:
        out.items(kept)


async def _read(
    client: Client, execution_id: str, filters: dict[str, Any]
) -> AsyncIterator[dict[str, Any]]:
    cursor: str | None = None
    while True:
        page = await client.log_page(
            execution_id, **filters, **({"cursor": cursor} if cursor else {})
        )
        for line in page.items:
            yield line
        cursor = page.next_cursor
        if cursor is None:
            return


def _write_line(out: Output, line: dict[str, Any]) -> None:
    if out.format == "jsonl":
        out.write(json_line(line))
        return
    attempt = f" #{line['attempt']}" if line["attempt"] > 1 else ""
    head = out.styled(f"{line['step']}{attempt} |", "cyan")
    out.line(f"{line['ts']} {head} {visible(line['text'])}")

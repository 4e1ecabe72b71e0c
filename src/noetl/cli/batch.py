"""Many runs from the lines of a file: each line is accepted or refused on its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import typer

from noetl.api.executions import Execute
from noetl.api.plain import Unreadable, plain, read
from noetl.cli import files
from noetl.cli.failures import CommandFailed
from noetl.cli.listing import Look, show_list
from noetl.cli.remote import ask
from noetl.cli.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl.api.client import Client
    from noetl.cli.output import Output

MOST_ITEMS: Final = 1000
MOST_BYTES: Final = 8 << 20
_INVALID: Final = 7

Item = dict[str, Any]


def start_batch(out: Output, name: str) -> None:
    """Start one run per line; what became of a line is shown as soon as its request is done."""
    source = files.read(name, most=files.WHOLE)
    is_streamed = out.format in {"jsonl", "name"}
    items: list[Item] = []

    async def work(client: Client) -> None:
        for chunk in _chunks(source.data):
            for told in await _started(client, chunk):
                items.append({**told, "index": len(items)})
                if is_streamed:
                    show_list(out, items[-1:], _LOOK)

    try:
        ask(out, work)
    except CommandFailed as fault:
        # Runs that were started are told of, whatever became of the rest.
        if out.is_structured and not is_streamed:
            fault.details = {**fault.details, "items": items}
        elif items and not is_streamed:
            show_list(out, items, _LOOK)
        raise
    # What became of each line is the data of this command, refusals too: it is never held back.
    if not is_streamed:
        show_list(out, items, _LOOK)
    failed = sum(1 for item in items if item["status"] == "error")
    if failed:
        out.note(f"{failed} of {len(items)} lines of {visible(source.name)} were refused")
        raise typer.Exit(_INVALID)


async def _started(client: Client, chunk: list[Execute | Item]) -> list[Item]:
    """What became of some lines, in their order."""
    bodies = [body for body in chunk if isinstance(body, Execute)]
    answers = iter((await client.execute_batch(bodies)).results if bodies else ())
    return [plain(next(answers)) if isinstance(line, Execute) else line for line in chunk]


def _chunks(data: bytes) -> Iterator[list[Execute | Item]]:
    """The lines, as many at a time as a request may have."""
    chunk: list[Execute | Item] = []
    size = 0
    for line in filter(bytes.strip, data.splitlines()):
        if chunk and (len(chunk) == MOST_ITEMS or size + len(line) > MOST_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(_body(line))
        size += len(line)
    if chunk:
        yield chunk


def _body(line: bytes) -> Execute | Item:
    try:
        return read(line, Execute)
    except Unreadable as fault:
        error = {"code": fault.code, "detail": fault.message}
        return {"status": "error", "commands_generated": 0, "error": error}


def _row(item: Item) -> tuple[str, ...]:
    error = item.get("error")
    told = f"{error['code']}: {error['detail']}" if error else ""
    return str(item["index"]), item["status"], item.get("execution_id") or "-", told


_LOOK: Final = Look(
    head=("LINE", "STATUS", "EXECUTION", "ERROR"),
    row=_row,
    name=lambda item: f"execution/{item.get('execution_id') or '-'}",
    nothing="the file has no line",
)

"""Documents side by side: versions of a catalog, and files beside what their paths mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from noetl.api.plain import plain
from noetl.api.problems import Refused
from noetl.cli.documents import written
from noetl.cli.parsing import parsed_stored
from noetl.cli.references import document_of
from noetl.cli.text import json_line, visible
from noetl.dsl.difference import difference

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from noetl.api.catalog import Entry
    from noetl.api.client import Client
    from noetl.cli.output import Output, Style
    from noetl.dsl.difference import Difference, ValueChange

_NOT_THERE: Final = 404
_STYLES: Final[dict[str, Style]] = {"+": "cyan", "-": "red", "@": "dim"}

Item = dict[str, Any]


async def between(client: Client, first: str, second: str | None) -> Item:
    """Two versions; of one, that and the version before it."""
    old = await document_of(client, first)
    if second is None:
        return plain(await client.difference(old.path, None, old.version))
    new = await document_of(client, second)
    before = await client.resolve(old.path, old.version)
    after = await client.resolve(new.path, new.version)
    if old.path == new.path:
        return plain(await client.difference(old.path, before.version, after.version))
    names = (f"{old.path}@{before.version}", f"{new.path}@{after.version}")
    found = difference(parsed_stored(before.content), parsed_stored(after.content), names)
    return {
        "path": new.path, "from_path": old.path, "from": before.version, "to": after.version,
        **_told(found),
    }  # fmt: skip


async def of_files(client: Client, names: Sequence[str]) -> list[Item]:
    """Each file beside what its path means; one that the catalog does not have is all new."""
    return [await _of_file(client, name) for name in names]


async def _of_file(client: Client, name: str) -> Item:
    document = written(name)
    known = await _known(client, document.path)
    version = None if known is None else known.version
    place = document.path if known is None else f"{document.path}@{version}"
    before = parsed_stored("" if known is None else known.content)
    found = difference(before, document.parsed, (place, name))
    told = _told(found)
    if known is None and document.parsed.model is not None:
        steps = getattr(document.parsed.model, "workflow", ())
        told["steps"]["added"] = [step.name for step in steps]
    return {"file": name, "path": document.path, "from": version, "to": None, **told}


async def _known(client: Client, path: str) -> Entry | None:
    try:
        return await client.resolve(path)
    except Refused as fault:
        if fault.problem.status == _NOT_THERE:
            return None
        raise


def _told(found: Difference) -> Item:
    """A difference in the words of the API."""
    return {
        "unified": found.unified,
        "steps": {
            "added": list(found.added),
            "removed": list(found.removed),
            "changed": [{"step": one.step, "keys": list(one.keys)} for one in found.changed],
        },
        "workload": [_value(one) for one in found.workload],
        "breaking": [
            {"code": one.code, "name": one.name, "message": one.message} for one in found.breaking
        ],
    }


def _value(found: ValueChange) -> Item:
    before = {} if found.change == "added" else {"from": found.before}
    after = {} if found.change == "removed" else {"to": found.after}
    return {"name": found.name, "change": found.change, **before, **after}


def shown(out: Output, item: Item) -> Iterator[str]:
    """A difference for a person: what it means, then the text."""
    steps = item["steps"]
    yield from (visible(f"step {name}: added") for name in steps["added"])
    yield from (visible(f"step {name}: removed") for name in steps["removed"])
    for one in steps["changed"]:
        yield visible(f"step {one['step']}: changed {', '.join(one['keys'])}")
    for one in item["workload"]:
        sides = [json_line(one[key]).strip() for key in ("from", "to") if key in one]
        yield visible(f"input {one['name']}: {one['change']} {' -> '.join(sides)}")
    for one in item["breaking"]:
        yield out.styled(visible(f"breaking: {one['message']} [{one['code']}]"), "bold", "red")
    for line in item["unified"].splitlines():
        style = _STYLES.get(line[:1])
        yield out.styled(visible(line), style) if style else visible(line)

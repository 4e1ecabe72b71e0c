"""The end of a run of a server: waited for, watched or not, and shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.api.problems import Refused
from noetl.cli.follow import Nobody, follower
from noetl.cli.listing import show_one
from noetl.cli.summary import summary
from noetl.cli.waiting import Following
from noetl.clock import SystemClock
from noetl.local.references import MOST_OUTPUT, inlined

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.api.client import Client
    from noetl.cli.output import Output
    from noetl.local.steps import Run


async def ended(  # noqa: PLR0913 - one word per thing that the caller decides
    out: Output,
    client: Client,
    execution_id: str,
    *,
    catalog_id: str,
    is_followed: bool,
    most_output: int | None = None,
) -> Run:
    """The run, once it has ended, with its results; its steps are shown on the way."""
    is_seen = is_followed and not out.is_quiet
    names = await _step_names(client, catalog_id) if is_seen else ()
    with follower(out, SystemClock(), names) if is_seen else Nobody() as view:
        following = Following(client, view, with_children=is_seen, is_met=True)
        run = await following.to_end(execution_id)
    await inlined(client, run, MOST_OUTPUT if most_output is None else most_output)
    return run


async def _step_names(client: Client, catalog_id: str) -> Sequence[str]:
    """The steps of a playbook in their order; none when the caller may not read it."""
    from noetl.cli.parsing import parsed_stored
    from noetl.dsl.playbook.document import Playbook

    try:
        entry = await client.entry(catalog_id)
    except Refused:
        return ()  # the tree shows the steps as they are entered
    model = parsed_stored(entry.content).model
    return [step.name for step in model.workflow] if isinstance(model, Playbook) else ()


def show_run(out: Output, run: Run) -> None:
    """Write a run that has ended."""
    if out.format == "table":
        out.write(summary(out, run))
    else:
        show_one(out, run.as_json(), f"execution/{run.execution_id}")

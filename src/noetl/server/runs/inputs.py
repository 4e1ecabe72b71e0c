"""Secret inputs of runs: sealed when a run starts, taken over by those that repeat it.

What a run hands on to a child is a mask in the events of both. The template that names it says
which of the parent's secrets is meant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from noetl.dsl.secret_inputs import CALLBACK, MASK, at, named, path_of, with_secrets, without
from noetl.dsl.template import compile_template, is_template, reads
from noetl.edge.errors import Unacceptable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from noetl.engine.program import Program
    from noetl.engine.state import State
    from noetl.server.ingest.wanted import Wanted
    from noetl.server.wallet.inputs import RunSecrets
    from noetl.store.base import ScheduleRow

Path = tuple[str, ...]
_CHILDREN = frozenset({"playbook", "playbooks"})


class SecretInputs:
    """The secret inputs of runs that are to start."""

    def __init__(self, secrets: RunSecrets) -> None:
        self._secrets = secrets

    async def filled(self, wanted: Wanted) -> None:
        """Put the values of another run into the places of the masks."""
        if wanted.secrets_of is None:
            return
        known = await self._secrets.of(wanted.tenant_id, wanted.secrets_of)
        wanted.places += tuple(map(path_of, known))
        if known and wanted.workload is not None:
            wanted.workload = with_secrets(wanted.workload, known)
        elif known:
            wanted.payload = with_secrets(wanted.payload, known)
        wanted.secrets_of = None

    async def keep(self, wanted: Wanted, execution_id: str) -> None:
        """Seal what was taken out of the workload, before the run begins."""
        if wanted.secrets:
            await self._secrets.keep(wanted.tenant_id, execution_id, wanted.secrets)

    async def scheduled(self, row: ScheduleRow, program: Program) -> ScheduleRow:
        """The row of a schedule without the secrets of its payload, which are sealed for it."""
        masked, taken = without(row.payload, program.secret)
        if not taken:
            return row
        await self._secrets.keep(row.tenant_id, row.schedule_id, taken)
        return msgspec.structs.replace(row, payload=masked)

    async def handed_on(
        self, wanted: Wanted, child: Program, parent: State, asked: Mapping[str, Any]
    ) -> None:
        """Put the secrets of a parent into the payload of its child, where the child keeps them.

        What proves a callback is kept by every child under its own name.
        """
        known = parent.program.secret
        if at(parent.workload, CALLBACK) == MASK and CALLBACK not in known:
            known = (*known, CALLBACK)
        if not known or wanted.parent_execution_id is None:
            return
        meant: dict[str, tuple[Path, Path]] = {}
        for box in _inputs(parent.program, str(asked.get("step"))):
            for place, secret, inner in _handed(box, (), known):
                value = at(wanted.payload, place)
                if value is None or MASK not in str(value):
                    continue
                if place == secret == CALLBACK:
                    wanted.places += (CALLBACK,)
                elif not any(place[: len(path)] == path for path in child.secret):
                    raise _refused(place, "is a secret of the parent; declare it `secret: true`")
                if value != MASK:
                    raise _refused(place, "holds a secret of the parent; name it alone")
                meant[named(place)] = secret, inner
        if meant:
            kept = await self._secrets.of(wanted.tenant_id, wanted.parent_execution_id)
            values = {
                place: at(kept.get(named(secret)), inner)
                for place, (secret, inner) in meant.items()
            }
            wanted.payload = with_secrets(wanted.payload, values)


def _inputs(program: Program, step: str) -> Iterator[Mapping[str, Any]]:
    """The inputs that a step writes for its children."""
    plan = program.steps.get(step)
    if plan is None:
        return
    for tool in plan.step.tools:
        if tool.kind in _CHILDREN:
            yield {**plan.step.input, **tool.input}
            for item in getattr(tool, "items", None) or ():
                if not isinstance(item, str):
                    yield item.input


def _handed(value: object, at_: Path, known: tuple[Path, ...]) -> Iterator[tuple[Path, Path, Path]]:
    """The places of an input that secrets of the parent get to, which ones, and where in them."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _handed(item, (*at_, name), known)
    elif isinstance(value, str) and is_template(value):
        for read in reads(compile_template(value)):
            path = read[1:] if read[0] == "workload" else read
            for secret in known:
                if path[: len(secret)] == secret:
                    yield at_, secret, path[len(secret) :]
                elif secret[: len(path)] == path:
                    yield (*at_, *secret[len(path) :]), secret, ()


def _refused(place: Path, what: str) -> Unacceptable:
    return Unacceptable(
        f"the input `{'.'.join(place)}` of the child {what}",
        code="invalid_input",
        errors=({"pointer": f"/{named(place)}", "code": "invalid_input", "message": what},),
    )

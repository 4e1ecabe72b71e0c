"""Variables of runs: kept under a name, read by anybody who may read the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from noetl.api.variables import Variable, VariableDeleted, VariablesDeleted, VariablesSet
from noetl.clock import rfc3339
from noetl.edge.errors import NotFound, TooLarge, Unacceptable
from noetl.edge.moments import from_now
from noetl.store.variables import VariableRow

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from noetl.api.variables import SetVariable, SetVariables
    from noetl.clock import Clock
    from noetl.server.access.owning import Owners
    from noetl.store.variables import Variables

MOST_VARIABLES: Final = 10_000
MOST_VALUE_BYTES: Final = 1024 * 1024
LONGEST_NAME: Final = 255
LONGEST_TTL_S: Final = 366 * 86_400
_FIRST_PAGE: Final = 16
"""Values may be large: the first rows tell how many more may be read at once."""
_LAST_PAGE: Final = 1_000
_encode: Final = msgspec.json.Encoder().encode


class Vars:
    """Keeps and reads variables."""

    def __init__(self, variables: Variables, owners: Owners, clock: Clock) -> None:
        self._variables = variables
        self._owners = owners
        self._clock = clock

    async def put(self, execution_id: str, body: SetVariables) -> VariablesSet:
        """Keep variables, all of them or none."""
        await self._owners.of(execution_id)
        rows = [self._row(execution_id, place, one) for place, one in enumerate(body.variables)]
        names = {row.var_name for row in rows}
        if len(names) > MOST_VARIABLES or not await self._variables.put(
            execution_id, rows, now=self._now(), most=MOST_VARIABLES
        ):
            raise Unacceptable(
                f"a run has at most {MOST_VARIABLES} variables",
                hint="delete some, or keep one object with many keys",
            )
        return VariablesSet(execution_id=execution_id, variables_set=len(names))

    async def get(self, execution_id: str, var_name: str) -> Variable:
        """One variable; the read is counted."""
        row = await self._variables.get(execution_id, var_name, now=self._now())
        if row is None:
            raise _no_such(var_name)
        return _told(row)

    async def listed(self, execution_id: str) -> AsyncIterator[bytes]:
        """All variables as the parts of one JSON list, by name; few are in memory at once."""
        await self._owners.of(execution_id)
        return self._pages(execution_id)

    async def delete(self, execution_id: str, var_name: str) -> VariableDeleted:
        """Forget one variable."""
        if not await self._variables.delete(execution_id, var_name, now=self._now()):
            raise _no_such(var_name)
        return VariableDeleted()

    async def clear(self, execution_id: str) -> VariablesDeleted:
        """Forget all variables of a run."""
        await self._owners.of(execution_id)
        count = await self._variables.clear(execution_id)
        return VariablesDeleted(execution_id=execution_id, variables_deleted=count)

    async def _pages(self, execution_id: str) -> AsyncIterator[bytes]:
        now, after, limit, opening = self._now(), "", _FIRST_PAGE, b"["
        while True:
            rows = await self._variables.listed(execution_id, now=now, after=after, limit=limit)
            if not rows:
                break
            part = b",".join(_encode(_told(row)) for row in rows)
            yield opening + part
            after, opening = rows[-1].var_name, b","
            if len(rows) < limit:
                break
            limit = _LAST_PAGE if len(part) < MOST_VALUE_BYTES else _FIRST_PAGE
        yield b"]" if opening == b"," else b"[]"

    def _row(self, execution_id: str, place: int, one: SetVariable) -> VariableRow:
        pointer = f"/variables/{place}"
        if not 0 < len(one.var_name) <= LONGEST_NAME or not one.var_name.strip():
            raise _unfit(f"{pointer}/var_name", f"a name has 1..{LONGEST_NAME} characters")
        if one.ttl_seconds is not None and not 1 <= one.ttl_seconds <= LONGEST_TTL_S:
            raise _unfit(f"{pointer}/ttl_seconds", f"is not in 1..{LONGEST_TTL_S}")
        size = len(_encode(one.var_value))
        if size > MOST_VALUE_BYTES:
            raise TooLarge(f"the variable {one.var_name!r} has more than {MOST_VALUE_BYTES} bytes")
        return VariableRow(
            execution_id=execution_id,
            var_name=one.var_name,
            var_value=one.var_value,
            var_type=one.var_type,
            source_step=one.source_step,
            expires_at=None if one.ttl_seconds is None else from_now(self._clock, one.ttl_seconds),
        )

    def _now(self) -> str:
        return rfc3339(self._clock.now())


def _told(row: VariableRow) -> Variable:
    return Variable(
        var_name=row.var_name,
        var_type=row.var_type,
        var_value=row.var_value,
        source_step=row.source_step,
        created_at=row.created_at,
        accessed_at=row.accessed_at,
        access_count=row.access_count,
    )


def _no_such(var_name: str) -> NotFound:
    return NotFound(f"the run has no variable {var_name[:80]!r}")


def _unfit(pointer: str, message: str) -> Unacceptable:
    errors = ({"pointer": pointer, "code": "validation_failed"},)
    return Unacceptable(f"{pointer}: {message}", errors=errors)

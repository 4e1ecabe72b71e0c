"""Variables of runs: small values that tools and people leave for each other, under a name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence


class VariableRow(msgspec.Struct, frozen=True, kw_only=True):
    """One variable; execution and name are its key."""

    execution_id: str
    var_name: str
    var_value: Any
    var_type: str = "user_defined"
    source_step: str | None = None
    created_at: str = ""
    accessed_at: str | None = None
    access_count: int = 0
    expires_at: str | None = None


class Variables(Protocol):
    """Variables by run and name; one whose time has passed is not there."""

    async def put(
        self, execution_id: str, rows: Sequence[VariableRow], *, now: str, most: int
    ) -> bool:
        """Keep variables, all of them or none.

        A name that is known gets the new value; how often it was read stays. False, and nothing
        kept, when the run would have more than `most`.
        """

    async def get(self, execution_id: str, var_name: str, *, now: str) -> VariableRow | None:
        """One variable; the read is counted, and the row tells of it."""

    async def listed(
        self, execution_id: str, *, now: str, after: str = "", limit: int = 100
    ) -> list[VariableRow]:
        """Variables of a run by name, those behind a name; no read is counted."""

    async def delete(self, execution_id: str, var_name: str, *, now: str) -> bool:
        """Forget a variable; false when it is not there."""

    async def clear(self, execution_id: str) -> int:
        """Forget all variables of a run; how many there were."""

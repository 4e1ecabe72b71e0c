"""Whose run it is: a run of another tenant is no run at all.

The log of a subscription is read as that of a run is, by those who may read the subscription.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Protocol

from noetl.edge.errors import UnknownExecution
from noetl.ids import parse
from noetl.server.access.caller import LOCAL, caller_of, must
from noetl.server.access.listening import CONTROL, READ, must_listen

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

    from noetl.server.access.caller import Caller
    from noetl.server.recent import Recent
    from noetl.store.base import ExecutionRow, Executions
    from noetl.store.subscriptions import SubscriptionRow

    Named = Callable[[str], Awaitable[SubscriptionRow | None]]
    """The subscription of an id, if there is one."""

MOST_KEPT: Final = 20_000


class Owners:
    """Tenants and paths of runs, which never change: the last ones that were asked for are kept."""

    def __init__(self, executions: Executions, recent: Recent, named: Named | None = None) -> None:
        self._executions = executions
        self._named = named
        self._recent = recent
        self._kept: OrderedDict[str, tuple[str, str]] = OrderedDict()
        self._listening: dict[str, None] = {}
        """Which of them are subscriptions; there are few."""

    async def of(self, execution_id: str) -> tuple[str, str]:
        """The tenant and the path of a run."""
        found = self._kept.get(execution_id)
        if found is not None:
            self._kept.move_to_end(execution_id)
            return found
        row = await self._row(execution_id) or await self._subscription(execution_id)
        if row is None:
            raise _unknown(execution_id)
        found = self._kept[execution_id] = (row.tenant_id, row.path)
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return found

    async def root_of(self, execution_id: str) -> str:
        """The run that began all: that of a run without a parent is the run itself."""
        row = await self._row(execution_id)
        if row is None:
            raise _unknown(execution_id)
        return await root_of(row, self._row)

    async def _subscription(self, execution_id: str) -> SubscriptionRow | None:
        found = None if self._named is None else await self._named(execution_id)
        if found is not None:
            self._listening[execution_id] = None
        return found

    async def _row(self, execution_id: str) -> ExecutionRow | None:
        return self._recent.first_row(execution_id) or await self._executions.get(execution_id)

    async def must(self, caller: Caller, permission: str, execution_id: str) -> None:
        """Refuse a run that is not there for the caller, or with which he may not do this."""
        if not caller.is_bound and not caller.grants:
            return  # the platform's own processes work for all tenants
        tenant_id, path = await self.of(execution_id)
        if caller.is_bound and tenant_id != caller.tenant_id:
            raise _unknown(execution_id)
        if execution_id in self._listening:
            must_listen(caller, READ if permission.endswith(":read") else CONTROL, path)
            return
        must(caller, permission, path)

    async def exists(self, execution_id: str) -> bool:
        """Whether there is such a run, of whichever tenant."""
        try:
            await self.of(execution_id)
        except UnknownExecution:
            return False
        return True

    async def sees(self, caller: Caller, execution_id: str) -> bool:
        """Whether a run is there for the caller at all; he may still not be allowed to read it."""
        if not caller.is_bound:
            return True
        return await self.exists(execution_id) and self._kept[execution_id][0] == caller.tenant_id


async def root_of(row: ExecutionRow, get: Callable[[str], Awaitable[ExecutionRow | None]]) -> str:
    """The run that stands above a run and all its parents, as far as they are not forgotten."""
    while row.parent_execution_id is not None:
        above = await get(row.parent_execution_id)
        if above is None:
            break
        row = above
    return row.execution_id


class Owning(Protocol):
    """Whatever knows the owners of runs: the plane."""

    owners: Owners


async def owned(plane: Owning, request: Request, permission: str) -> str:
    """The run that a path names, if it is of the caller's tenant and he may do this with it."""
    execution_id = parse(request.path_params["execution_id"])
    caller = caller_of(request)
    if caller is not LOCAL:
        await plane.owners.must(caller, permission, execution_id)
    return execution_id


def _unknown(execution_id: str) -> UnknownExecution:
    return UnknownExecution(f"there is no execution {execution_id}")

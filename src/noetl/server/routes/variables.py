"""Variables of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import StreamingResponse

from noetl.api.variables import (
    SetVariables,
    Variable,
    VariableDeleted,
    VariablesDeleted,
    VariablesSet,
)
from noetl.edge.declared import Declared
from noetl.edge.reading import JSON, json, read
from noetl.server.access.owning import owned
from noetl.server.auditing.audit import audited
from noetl.server.routes.exchange import route

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from noetl.server.plane import Plane

_LIST = Declared(
    about="Every variable of a run, by name; no read is counted.",
    answer=tuple[Variable, ...],
    codes=("unknown_execution",),
)
_SET = Declared(
    about="Keep variables of a run, all of them or none.",
    body=SetVariables,
    answer=VariablesSet,
    audit="vars.set",
    codes=("unknown_execution", "body_too_large"),
)
_CLEAR = Declared(
    about="Forget all variables of a run.",
    answer=VariablesDeleted,
    audit="vars.clear",
    codes=("unknown_execution",),
)
_ONE = Declared(
    about="One variable; the read is counted.",
    answer=Variable,
    codes=("unknown_execution", "not_found"),
)
_FORGET = Declared(
    about="Forget one variable.",
    answer=VariableDeleted,
    audit="vars.delete",
    codes=("unknown_execution", "not_found"),
)


def routes(plane: Plane) -> list[Route]:
    """Every route of this file, under both of its names."""
    made = []
    for word in ("vars", "variables"):
        run = f"/api/{word}/{{execution_id}}"
        one = f"{run}/{{var_name:path}}"
        made += [
            route(plane, "GET", run, _listed, "vars:read", _LIST),
            route(plane, "POST", run, _set, "vars:write", _SET),
            route(plane, "DELETE", run, _clear, "vars:write", _CLEAR),
            route(plane, "GET", one, _one, "vars:read", _ONE),
            route(plane, "DELETE", one, _forget, "vars:write", _FORGET),
        ]
    return made


async def _listed(plane: Plane, request: Request) -> Response:
    execution_id = await owned(plane, request, "vars:read")
    return StreamingResponse(await plane.variables.listed(execution_id), media_type=JSON)


async def _set(plane: Plane, request: Request) -> Response:
    execution_id = await owned(plane, request, "vars:write")
    body = await read(request, SetVariables)
    audited(request, execution_id, names=[one.var_name for one in body.variables[:100]])
    return json(await plane.variables.put(execution_id, body))


async def _clear(plane: Plane, request: Request) -> Response:
    execution_id = await owned(plane, request, "vars:write")
    audited(request, execution_id)
    return json(await plane.variables.clear(execution_id))


async def _one(plane: Plane, request: Request) -> Response:
    execution_id = await owned(plane, request, "vars:read")
    return json(await plane.variables.get(execution_id, request.path_params["var_name"]))


async def _forget(plane: Plane, request: Request) -> Response:
    execution_id = await owned(plane, request, "vars:write")
    var_name = request.path_params["var_name"]
    audited(request, execution_id, name=var_name)
    return json(await plane.variables.delete(execution_id, var_name))

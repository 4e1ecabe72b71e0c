"""Where a run belongs, for whoever wants to compare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.api.gateway import ShardPreview
from noetl.edge.declared import Parameter
from noetl.edge.errors import BadQuery
from noetl.edge.reading import json
from noetl.gateway.declaring import PUBLIC, Declared, route
from noetl.gateway.shards import id_of
from noetl.ids import MOST_SHARDS, SHARD_HASH, SHARD_SEED, shard_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

    from noetl.gateway.gate import Gate

_DIGITS: Final = len(str(MOST_SHARDS))
_PREVIEW: Final = Declared(
    about="Tells which shard a run belongs to among so many.",
    answer=ShardPreview,
    query=(
        Parameter("execution_id", "The run.", "id", is_required=True),
        Parameter("shard_count", "Among how many.", "number", least=1, most=MOST_SHARDS),
    ),
    codes=("bad_query",),
)


def routes(gate: Gate) -> list[BaseRoute]:
    """Every route of this file."""
    return [route(gate, "GET", "/sharding/preview", _preview, PUBLIC, _PREVIEW)]


async def _preview(gate: Gate, request: Request) -> Response:
    asked = request.query_params
    execution_id = id_of(asked.get("execution_id", ""))
    if execution_id is None:
        raise BadQuery("`execution_id` is not a whole number of 64 bits")
    given = asked.get("shard_count", str(gate.shards.count))
    count = int(given) if given.isascii() and given.isdigit() and len(given) <= _DIGITS else 0
    if not 1 <= count <= MOST_SHARDS:
        raise BadQuery(f"`shard_count` is not in 1..{MOST_SHARDS}")
    return json(
        ShardPreview(
            execution_id=execution_id,
            shard_count=count,
            shard_index=shard_of(execution_id, count),
            hash_function=SHARD_HASH,
            seed=SHARD_SEED,
        )
    )

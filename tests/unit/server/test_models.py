"""Models of answers: ids go outward as texts, so that no reader rounds them."""

from __future__ import annotations

import types
import typing
from typing import Any

import msgspec

from tests.unit.server.rig import rig, virtually


def fields(model: Any, seen: set[Any]) -> list[tuple[str, str, Any]]:
    """Every field of a model and of those within it: model, name, type."""
    if isinstance(model, types.UnionType) or typing.get_origin(model) is not None:
        return [found for part in typing.get_args(model) for found in fields(part, seen)]
    if not (isinstance(model, type) and issubclass(model, msgspec.Struct)) or model in seen:
        return []
    seen.add(model)
    found = []
    for field in msgspec.structs.fields(model):
        found.append((model.__name__, field.encode_name, field.type))
        found += fields(field.type, seen)
    return found


def holds_numbers(kind: Any) -> bool:
    """Whether a value of this type may be a number."""
    return kind in {int, float} or any(map(holds_numbers, typing.get_args(kind)))


@virtually
async def test_every_id_goes_outward_as_a_text() -> None:
    async with rig() as r:
        seen: set[Any] = set()
        told = [
            found
            for route in r.server.asgi.routes
            for model in (route.declared.answer, *route.declared.also.values())
            for found in fields(model, seen)
        ]
        ids = [item for item in told if item[1].endswith(("_id", "_ids")) or item[1] == "id"]
        assert len(ids) > 50
        numbers = {item[:2] for item in ids if holds_numbers(item[2])}
        assert numbers == {("Joined", "machine_id")}  # ten bits, and no thing has it

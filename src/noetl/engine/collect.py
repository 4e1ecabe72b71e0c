"""What a task collects over the passes of its pipeline (`output.accumulate`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl.dsl.paths import NoSuchPath, found_at
from noetl.engine.config import Unrendered

if TYPE_CHECKING:
    from noetl.dsl.tasks.task import Accumulate, Task
    from noetl.dsl.views import Outcome

NAME = "accumulated"


def collector(task: Task, outcome: Outcome) -> Accumulate | None:
    """How this outcome is collected, if it is."""
    spec = task.output.accumulate if task.output else None
    if spec is None or not spec.enabled:
        return None
    return spec if (spec.on_error if outcome.error else spec.on_success) else None


def collected(spec: Accumulate, before: Any, data: Any) -> Any:  # noqa: ANN401 - data of a tool
    """What was collected so far and this outcome, in the way that the author chose."""
    try:
        piece = found_at(data, spec.merge_path) if spec.merge_path else data
    except NoSuchPath:
        return before
    match spec.strategy:
        case "replace":
            made = piece
        case "merge":
            made = {**(before or {}), **_of(piece, dict, "merge")}
        case "concat" if isinstance(piece, str):
            made = (before or "") + piece
        case "concat":
            made = [*(before or []), *_of(piece, list, "concat")]
        case _:
            made = [*(before or []), *(piece if isinstance(piece, list) else [piece])]
    if spec.max_items is not None and isinstance(made, (list, dict)) and len(made) > spec.max_items:
        message = f"`output.accumulate`: more than {spec.max_items} items"
        raise Unrendered(message, kind="limit", code="accumulate_limit")
    return made


def _of(piece: Any, kind: type, strategy: str) -> Any:  # noqa: ANN401 - data of a tool
    if not isinstance(piece, kind):
        word = "map" if kind is dict else "list"
        raise Unrendered(f"`output.accumulate`: `{strategy}` needs a {word}", code="accumulate")
    return piece

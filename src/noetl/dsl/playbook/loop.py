"""A loop: over items, or over rows that a cursor claims."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from noetl.dsl.shape import (
    AsPublished,
    ByType,
    Constraint,
    Data,
    ExactlyOne,
    Model,
    Name,
    Of,
    Text,
    choice,
    key,
    model,
    whole,
)
from noetl.dsl.shape.reader import SERVER, SQL, WORKER
from noetl.dsl.shape.units import Duration, Size

MOST_IN_FLIGHT = 1_000
_CURSOR_ONLY = (
    (
        "if",
        {
            "required": ["spec"],
            "properties": {
                "spec": {
                    "anyOf": [
                        {"required": ["frame"]},
                        {"required": ["mode"], "properties": {"mode": {"const": "cursor"}}},
                    ]
                }
            },
        },
    ),
    ("then", {"required": ["cursor"]}),
)


@model
class Frame(Model):
    """One claim of a cursor loop."""

    max_rows: int | str = key(whole(1, 1000, role=SERVER), "rows a claim", default=1)
    max_seconds: float | str = key(Duration(SERVER), "longest frame", default=30)
    max_bytes: int | str = key(Size(SERVER), "largest frame", default=67_108_864)
    lease_seconds: float | str = key(Duration(SERVER), "lease", default=120)
    heartbeat_seconds: float | str = key(Duration(SERVER), "heartbeat", default=30)
    row_concurrency: int | str = key(whole(1, 1000, role=SERVER), "rows at once", default=1)
    process: str = key(choice("row", "frame"), "one body per row or per frame", default="row")
    retry_mode: str = key(
        choice("whole_frame", "failed_rows"), "what is tried again", default="failed_rows"
    )
    max_attempts: int = key(whole(1, 100), "tries of a frame", default=3)


@model
class Exec(Model):
    """Where iterations run."""

    exec: Literal["distributed", "local"] = key(
        choice("distributed", "local"), "local: prefer the last worker", default="distributed"
    )


@model
class LoopSpec(Model):
    """How a loop runs."""

    mode: Literal["sequential", "parallel", "cursor"] | None = key(
        choice("sequential", "parallel", "cursor"), "sequential unless written", default=None
    )
    max_in_flight: int | str | None = key(
        whole(1, MOST_IN_FLIGHT, role=SERVER), "iterations (frames) at once", default=None
    )
    policy: Exec | None = key(Of(Exec), "where iterations run", default=None)
    frame: Frame | None = key(Of(Frame), "frames of a cursor loop", default=None)


@model
class CursorOptions(Model):
    """Limits of a cursor."""

    keeps_unknown: ClassVar[bool] = True

    max_iterations: int = key(whole(1), "most frames", default=100_000)


@model
class Cursor(Model):
    """Where a cursor loop claims its rows."""

    kind: Literal["postgres", "sqlite", "duckdb", "nats"] = key(
        choice("postgres", "sqlite", "duckdb", "nats"), "kind of source"
    )
    auth: Any = key(
        ByType(text=Text(WORKER), map=Data(WORKER, only="map")), "credential", default=None,
        aliases=("credential",),
    )  # fmt: skip
    claim: str | None = key(
        Text(SQL), "statement that claims rows", default=None, aliases=("command", "query", "sql")
    )
    params: Any = key(Data(WORKER), "values bound by the driver", default=None)
    database: str | None = key(Text(WORKER), "DuckDB file", default=None)
    path: str | None = key(Text(WORKER), "SQLite file", default=None)
    stream: str | None = key(Text(WORKER), "NATS stream", default=None)
    consumer: str | None = key(Text(WORKER), "NATS consumer", default=None)
    options: CursorOptions | None = key(Of(CursorOptions), "limits", default=None)


@model
class Loop(Model):
    """Repeats the step's tools over items or claimed rows."""

    constraints: ClassVar[tuple[Constraint, ...]] = (
        ExactlyOne(("in", "cursor")),
        AsPublished("check.playbook: mode and frame of a cursor", _CURSOR_ONLY),
    )

    source: Any = key(
        Data(SERVER),
        "a list, a map, a number, a text, or a template of one",
        name="in",
        default=None,
    )
    cursor: Cursor | None = key(Of(Cursor), "claims rows in frames", default=None)
    iterator: str = key(Name(), "name of the item inside the body")
    spec: LoopSpec | None = key(Of(LoopSpec), "mode and limits", default=None)

    @property
    def mode(self) -> str:
        """How it runs, written or implied."""
        if self.cursor is not None:
            return "cursor"
        return (self.spec and self.spec.mode) or "sequential"

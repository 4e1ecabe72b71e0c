"""The vocabulary: what is said of an event is true of its rows."""

from noetl.engine import events as ev
from noetl.engine.rows import from_row, to_row
from noetl.engine.vocabulary import WORKER, vocabulary
from tests.unit.engine.host import Host, ok

BODY = """
workflow:
  - step: start
    loop: {in: 2, iterator: i}
    tool: {kind: python, code: "1"}
    set: {ctx.n: 1}
    next: {arcs: [{step: end}]}
  - {step: end}
"""


def found(row: dict[str, object], place: str) -> bool:
    for part in place.split("."):
        if not isinstance(row, dict) or part not in row:
            return False
        row = row[part]  # type: ignore[assignment] - walked down
    return True


def test_every_event_is_described_with_who_makes_it() -> None:
    docs = {item.name: item for item in vocabulary()}
    assert docs.keys() == ev.KINDS.keys()
    assert {item.producer for item in docs.values()} == {"call", "report", "engine"}
    assert docs.keys() >= WORKER
    assert all(item.meaning.endswith(".") or ";" in item.meaning for item in docs.values())


def test_facts_stand_where_they_are_said_to_stand() -> None:
    docs = {item.name: item for item in vocabulary()}
    for recorded in Host(BODY, lambda _: ok({"a": 1})).run().log:
        row = to_row(recorded)
        told = {field.place for field in docs[row["event_type"]].fields}
        for group in ("meta", "context"):
            for key in row.get(group, {}):
                assert f"{group}.{key}" in told, (row["event_type"], key)
        assert from_row(row) == recorded
        assert found(row, "step")

"""Statements for Snowflake, which cannot run here: what is sent, in what order."""

from __future__ import annotations

import pyarrow as pa
import pytest

from noetl.tools.base import ToolError
from noetl.tools.transfer.pump import Lanes
from noetl.tools.transfer.snow import SnowSource, SnowTarget, folded
from noetl.tools.transfer.work import Work
from tests.unit.tools.transfer.test_plan import plan

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
MARK_ROW = '{"rows_transferred": 2}'


class Session:
    """A connection and its cursor: answers by the beginning of a statement."""

    def __init__(self, answers=()):
        self.answers = dict(answers)
        self.sent = []
        self.bound = []
        self.sfqid = "q1"
        self._found = []
        self.description = [("ID",), ("NAME",)]

    def cursor(self):
        return self

    @property
    def connection(self):
        return self

    def execute(self, text, params=None):
        self.sent.append((text, params) if params else text)
        self._found = next(
            (rows for begin, rows in self.answers.items() if text.startswith(begin)), []
        )
        if isinstance(self._found, Exception):
            raise self._found

    def executemany(self, text, rows):
        self.sent.append(text)
        self.bound += rows

    def fetchall(self):
        return self._found

    def fetch_arrow_batches(self):
        return iter(self._found)


@pytest.fixture
def lanes():
    made = Lanes()
    yield made
    made.close()


def target(session, lanes, **given):
    work = Work(plan=plan(**given), ctx=None, lanes=lanes, folder=None)
    return SnowTarget(session, "sales.daily", work)


KNOWN = {'describe table "SALES"."DAILY"': [("ID", "NUMBER(38,0)"), ("NAME", "VARCHAR(20)")]}


async def moved(session, lanes, **given):
    made = target(session, lanes, **given)
    made.begin(SCHEMA)
    made.write(pa.record_batch([[1, 2], ["a", "b"]], schema=SCHEMA))
    said = await made.commit({"rows_transferred": 2})
    return said, session.sent


def texts(sent):
    return [one if isinstance(one, str) else one[0] for one in sent]


@pytest.mark.parametrize("mode", ["append", "replace"])
async def test_rows_are_staged_and_shown_in_one_transaction(lanes, mode):
    session = Session({**KNOWN, "merge into": [(1,)]})
    said, sent = await moved(session, lanes, mode=mode)
    assert said == {"rows_transferred": 2}
    assert session.bound == [(1, "a", 0), (2, "b", 1)]
    found = texts(sent)
    inside = found[found.index("begin transaction") + 1 : found.index("commit")]
    assert inside[0].startswith('merge into "SALES"."_NOETL_TRANSFER"')
    wipe = ['delete from "SALES"."DAILY"'] if mode == "replace" else []
    assert inside[1:] == [
        *wipe,
        'insert into "SALES"."DAILY" ("ID", "NAME") select "ID", "NAME" from "NOETL_STAGE"',
    ]


async def test_an_upsert_merges_the_last_row_of_each_key(lanes):
    session = Session({**KNOWN, "merge into": [(1,)]})
    _, sent = await moved(session, lanes, mode="upsert", key=("id",))
    merge = texts(sent)[-2]
    assert 'partition by "ID" order by "NOETL_NUMBER" desc' in merge
    assert 'when matched then update set old."NAME" = new."NAME"' in merge


async def test_a_second_try_shows_nothing_and_returns_the_first_outcome(lanes):
    session = Session({
        **KNOWN, "merge into": [(0,)], "select outcome": [(MARK_ROW,)],
        'describe table "SALES"."_NOETL_TRANSFER"': [("KEY", "VARCHAR")],
    })  # fmt: skip
    said, sent = await moved(session, lanes)
    assert said == {"rows_transferred": 2}
    assert not any(text.startswith('insert into "SALES"."DAILY"') for text in texts(sent))
    assert await target(session, lanes).earlier() == {"rows_transferred": 2}


async def test_a_failure_is_rolled_back(lanes):
    session = Session({**KNOWN, "merge into": [(1,)], 'insert into "SALES"': ValueError("no")})
    with pytest.raises(ValueError, match="no"):
        await moved(session, lanes)
    assert session.sent[-1] == "rollback"


async def test_bad_values_are_cast_and_a_table_is_made(lanes):
    session = Session({"merge into": [(1,)]})
    _, sent = await moved(session, lanes, is_made=True, is_lenient=True)
    found = texts(sent)
    make = 'create table if not exists "SALES"."DAILY" ("ID" number(38, 0), "NAME" varchar)'
    assert make in found
    assert any('try_cast("ID" as number(38, 0)) as "ID"' in text for text in found)


def test_a_missing_table_is_told(lanes):
    with pytest.raises(ToolError) as caught:
        target(Session(), lanes).begin(SCHEMA)
    assert caught.value.code == "table_not_found"


def test_rows_of_a_query_come_in_chunks():
    table = pa.table({"n": list(range(25))})
    source = SnowSource(Session({"select": [table, table]}), "select 1", None, plan())
    assert source.schema() == pa.schema([("n", pa.int64())])
    assert [batch.num_rows for batch in source.batches()] == [10, 10, 5, 10, 10, 5]


def test_a_query_without_rows_still_has_columns():
    source = SnowSource(Session(), "select 1", None, plan())
    assert (source.schema().names, list(source.batches())) == (["ID", "NAME"], [])


def test_stopping_cancels_the_query():
    session = Session()
    SnowSource(session, "select 1", None, plan()).stop()
    assert session.sent == [("select system$cancel_query(?)", ("q1",))]


def test_names_are_folded_as_snowflake_does():
    assert folded(("sales", "Daily", "with space")) == ("SALES", "Daily", "with space")

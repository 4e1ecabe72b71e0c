import json
import re
from pathlib import Path

import jsonschema
import pytest

from bench.machine import machine
from bench.marks import NoMark, placed
from bench.peers import measure
from bench.peers.engines import OURS, PEERS, named
from bench.peers.install import packages, version
from bench.peers.table import (
    ROWS,
    Column,
    cell,
    is_right,
    markdown,
    notes,
    ratio,
    rows,
    text,
)
from bench.peers.workload import Work, chain, fan_out, runs, single
from bench.raw import Raw
from bench.sampling import record

ROOT = Path(__file__).resolve().parents[3]
SCHEMA = json.loads((ROOT / "bench" / "record.schema.json").read_text(encoding="utf-8"))
RAW = dict.fromkeys(Raw.__slots__, 2000.0)
DBOS, RESTATE = PEERS[:2]
BEGIN, END = "<!-- compared -->", "<!-- /compared -->"


def made(name, value, *, correct=True, **params):
    rate = name in {"fanout", "runs"}
    one = record(
        name, [value], unit="items/s" if rate else "ms", better="higher" if rate else "lower",
        correct=correct, params=params, raw=RAW,
    )  # fmt: skip
    about = {"scenario": "peers", "version": "1", "commit": "c", "at": "2026-01-02T00:00:00+00:00"}
    on = {"postgres": "18.4", "nats": "2.15.1", "fsync": True, "synchronous_commit": "on"}
    return about | one | {"machine": machine() | on}


OUR_COLUMN = Column(engine=OURS, records=[made("chain", 100.0), made("fanout", 1_000.0)])


def test_a_ratio_tells_how_many_times_faster_ours_is():
    assert ratio(made("chain", 300.0), made("chain", 100.0)) == 3.0
    assert ratio(made("chain", 50.0), made("chain", 100.0)) == 0.5
    assert ratio(made("fanout", 250.0), made("fanout", 1_000.0)) == 4.0


def test_a_wrong_result_of_either_voids_the_ratio():
    right, wrong = made("chain", 1.0), made("chain", 1.0, correct=False)
    assert ratio(wrong, right) is None
    assert ratio(right, wrong) is None
    assert cell(wrong, right) == "WRONG RESULT"
    assert cell(right, wrong) == "1 ms"


def test_a_wrong_result_and_a_peer_that_fails_are_faults_and_a_missing_one_is_none():
    missing = Column(engine=DBOS, reason="cannot be installed here: uv: no network")
    assert is_right([OUR_COLUMN, missing])
    assert not is_right([OUR_COLUMN, Column(engine=DBOS, reason="it failed", is_failed=True)])
    wrong = Column(engine=DBOS, records=[made("chain", 1.0, correct=False)])
    assert not is_right([OUR_COLUMN, wrong])


def test_the_table_has_a_row_for_each_workload_and_a_column_for_each_engine():
    peer = Column(
        engine=DBOS,
        records=[made("chain", 307.0), made("chain-calls", 1_250.0), made("fanout", 148.0)],
    )
    assert rows([OUR_COLUMN, peer]) == [
        ["workload", OURS.title, DBOS.title],
        ["chain of 40 steps", "100 ms", "307 ms (3.1x)"],
        ["chain, each step a run of its own", "-", "1,250 ms (12x)"],
        ["fan-out and join", "1,000 items/s", "148 items/s (6.8x)"],
        ["raw commits before it", "2,000 /s", "2,000 /s"],
    ]


def test_a_peer_that_cannot_be_installed_is_told_with_its_reason():
    missing = Column(engine=RESTATE, reason="cannot be installed here: uv: no network")
    told = text([OUR_COLUMN, missing])
    assert f"{RESTATE.title}: not measured: cannot be installed here: uv: no network" in told
    assert RESTATE.title not in told.splitlines()[0]


def test_a_smaller_workload_is_told():
    small = Column(engine=DBOS, records=[made("fanout", 9.0, items=100), made("runs", 9.0)])
    [note] = notes([small])
    assert note.endswith("; only 100 items.")


def test_the_table_replaces_the_block_of_a_page_and_nothing_else():
    page = f"# A\n\n{BEGIN}\nold\n{END}\n\nend\n"
    block = markdown([OUR_COLUMN])
    once = placed(page, "compared", block)
    assert once == f"# A\n\n{BEGIN}\n{block}\n{END}\n\nend\n"
    assert placed(once, "compared", block) == once
    with pytest.raises(NoMark):
        placed("# A\n", "compared", block)


def test_what_is_written_into_a_page_holds_one_sentence_a_line():
    peers = [Column(engine=one, records=[made("chain", 1.0, items=10)]) for one in PEERS]
    lines = markdown([OUR_COLUMN, *peers]).splitlines()
    assert [line for line in lines if re.search(r"[a-z`)][.!?] [A-Z]", line)] == []


def test_the_page_has_the_marks():
    page = (ROOT / "docs" / "explanation" / "compared.md").read_text(encoding="utf-8")
    assert page.index(BEGIN) < page.index(END)


def test_records_of_peers_are_records():
    columns = [OUR_COLUMN, Column(engine=DBOS, records=[made("chain", 307.0)])]
    jsonschema.validate([one for column in columns for one in column.records], SCHEMA)


def test_a_peer_is_asked_for_by_its_name():
    assert [peer.name for peer in named([])] == [peer.name for peer in PEERS]
    assert named(["restate", "dbos", "restate"]) == [RESTATE, DBOS]
    with pytest.raises(SystemExit, match="no such peer: airflow"):
        named(["airflow"])


def test_every_peer_has_a_script_and_pinned_versions():
    for peer in PEERS:
        assert (ROOT / "bench" / "peers" / f"{peer.module}.py").exists()
        assert all("==" in one for one in packages(peer.environment))
        assert packages(peer.environment)


def test_versions_are_read_without_their_comments():
    given = "# a comment\nx  a==1  # why\ny  b==2\nx  npm:@c/d==3\n"
    assert packages("x", given) == ["a==1", "npm:@c/d==3"]
    assert re.fullmatch(r"[\d.]+", version("celery", "celery"))
    with pytest.raises(KeyError):
        version("celery", "unknown")


def test_no_peer_gets_into_our_lock():
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    for name in ("dbos", "prefect", "celery", "restate-sdk"):
        assert f"\n{name}==" not in lock


@pytest.mark.parametrize(
    ("work", "count", "warm_up"),
    [
        (chain(lambda: 39), 10, 2),
        (fan_out(lambda items: list(range(items))), 2, 2),
        (runs(lambda count: [1] * count), 2, 1),
        (single(lambda: 1), 200, 20),
    ],
)
def test_a_right_workload_is_measured_and_its_warm_up_is_not(work, count, warm_up):
    told = work.measure(2)
    assert (told["correct"], len(told["samples"]), work.warm_up) == (True, count, warm_up)
    assert told["name"] in ROWS


def test_one_wrong_result_among_many_is_found_also_in_the_warm_up():
    results = iter([7, *[39] * 20])
    told = chain(lambda: next(results)).measure(1)
    assert not told["correct"]


def test_a_count_makes_a_figure_a_rate():
    one = Work(name="x", do=lambda: 1, expected=1, params={}, count=10, unit="items/s")
    assert one.measure(1)["better"] == "higher"
    assert one.measure(1)["samples"][0] > 10


def test_singles_are_bounded():
    assert len(single(lambda: 1).measure(9)["samples"]) == 500


def test_a_log_is_told_by_its_last_words(tmp_path):
    log = tmp_path / "said.log"
    log.write_text("one\ntwo  \n\n", encoding="utf-8")
    assert measure.last(log) == "two"
    log.write_text("", encoding="utf-8")
    assert measure.last(log) == "it said nothing"

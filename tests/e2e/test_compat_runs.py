"""Every older playbook runs, and ends as compat_outcomes.yaml says that an honest engine must."""

from pathlib import Path

import pytest

from noetl.api.problems import Refused
from noetl.dsl.yaml import load
from tests.e2e.playing import Theatre, cases_of

HERE = Path(__file__).parent
COMPAT = HERE.parent / "compat"
TABLE = load((HERE / "compat_outcomes.yaml").read_bytes()).root
KEYS = {"cases", "alone", "refused", "never"}


def _cases(*, refused):
    for name, row in TABLE.items():
        for case in row.get("cases", ()):
            if ("refused" in case) == refused:
                yield pytest.param(name, case, id=f"{name[:3]}: {case['name']}")


def _alone(*, refused):
    for name, row in TABLE.items():
        if refused and "refused" in row:
            yield pytest.param(name, row["refused"], id=name[:3])
        elif not refused and "alone" in row and not row["alone"].get("offline"):
            yield pytest.param(name, row["alone"], id=name[:3])


@pytest.fixture(scope="module")
def theatre(tmp_path_factory):
    made = Theatre(tmp_path_factory.mktemp("compat"))
    yield made
    made.close()


def test_the_table_has_a_row_for_every_older_playbook():
    assert list(TABLE) == sorted(path.stem for path in COMPAT.glob("*.yaml"))


def test_every_row_says_how_its_playbook_ends_or_why_it_cannot_run():
    assert [name for name, row in TABLE.items() if set(row) - KEYS] == []
    assert [name for name, row in TABLE.items() if not row.keys() & {"cases", "never"}] == []


@pytest.mark.parametrize(("name", "case"), list(_cases(refused=False)))
def test_a_case_ends_as_it_must(theatre, name, case):
    (read,) = cases_of(name, [case])

    assert theatre.play(COMPAT / f"{name}.yaml", read).faults == ()


@pytest.mark.parametrize(("name", "case"), list(_cases(refused=True)))
def test_a_payload_that_does_not_fit_is_refused(theatre, name, case):
    with pytest.raises(Refused) as refusal:
        theatre.run(COMPAT / f"{name}.yaml", dict(case["payload"]))

    assert refusal.value.code == case["refused"]


@pytest.mark.parametrize(("name", "ending"), list(_alone(refused=False)))
def test_a_system_that_is_not_there_is_an_honest_failure(theatre, name, ending):
    run = theatre.run(COMPAT / f"{name}.yaml").run

    found = {"status": run.status} | {key: run.error[key] for key in ("kind", "code", "step")}
    assert found == ending


@pytest.mark.parametrize(("name", "code"), list(_alone(refused=True)))
def test_a_run_that_cannot_be_is_refused(theatre, name, code):
    with pytest.raises(Refused) as refusal:
        theatre.run(COMPAT / f"{name}.yaml")

    assert refusal.value.code == code

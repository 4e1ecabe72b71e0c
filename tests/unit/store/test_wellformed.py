import msgspec
import pytest

from noetl.engine.events import PlaybookCancelled, PlaybookCompleted
from noetl.store.wellformed import MalformedChange, check
from tests.conformance.store_suite import Run, entered


def test_dense_events_of_one_run_are_fine():
    check(Run(seq=3).change(entered(), PlaybookCompleted()))
    check(Run().change())


@pytest.mark.parametrize(
    "fields",
    [
        {"expected_seq": 2},
        {"execution_id": "9"},
        {"execution": Run("9").row()},
        {"events": Run("9", seq=3).change(entered()).events},
        {"events": Run(seq=3).change(PlaybookCompleted(), PlaybookCancelled()).events},
        {"events": Run(seq=3).change(entered()).events * 2},
    ],
)
def test_anything_else_is_refused(fields):
    change = msgspec.structs.replace(Run(seq=3).change(entered()), **fields)
    with pytest.raises(MalformedChange) as caught:
        check(change)
    assert caught.value.code == "malformed_change"

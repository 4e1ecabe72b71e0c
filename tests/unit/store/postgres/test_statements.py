import re

from noetl.store.postgres.batch import Batch
from noetl.store.postgres.statements import COMMIT
from tests.conformance.store_suite import Run, at, entered


def numbers(text):
    return sorted({int(found) for found in re.findall(r"\$(\d+)", text)})


def test_a_batch_brings_the_parameters_of_its_statement():
    run, other = Run("1"), Run("2", seq=4)
    variants = {
        (False, False): [other.change(entered())],
        (True, False): [run.change(run.started(), dedup=("s", "k", at(9)))],
        (False, True): [other.change(entered(), timers=(other.timer("t", 1),))],
        (True, True): [run.change(run.started(), callbacks={"d": "1"}), other.change(entered())],
    }
    for variant, changes in variants.items():
        batch = Batch(changes, [])
        assert (batch.has_starts, batch.has_rest) == variant
        assert numbers(COMMIT[variant]) == list(range(1, len(batch.values()) + 1))

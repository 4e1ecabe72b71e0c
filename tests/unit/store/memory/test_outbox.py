from noetl.store.memory.outbox import write
from noetl.store.memory.tables import Tables
from tests.conformance.store_suite import Run, entered


def test_a_message_is_kept_once_and_in_its_first_place():
    tables, run = Tables(), Run()
    write(tables, run.change(entered(), outgoing=(run.outgoing(1), run.outgoing(2))))
    write(tables, run.change(entered(), outgoing=(run.outgoing(1),)))
    assert [kept for kept, _ in tables.outbox.values()] == [run.outgoing(1), run.outgoing(2)]

from tests.conformance.subscriptions_suite import (
    CircuitsSuite,
    DeliveriesSuite,
    LettersSuite,
    OutcomesSuite,
    SubscriptionsSuite,
    TicksSuite,
    TwoKeysSuite,
)

EMPTY = """
delete from noetl.event; delete from noetl.execution; delete from noetl.command;
delete from noetl.subscription; delete from noetl.subscription_outcome;
delete from noetl.subscription_dedup; delete from noetl.dead_letter; delete from noetl.delivery;
delete from noetl.circuit"""


class TestSubscriptions(SubscriptionsSuite):
    pass


class TestTicks(TicksSuite):
    pass


class TestOutcomes(OutcomesSuite):
    pass


class TestLetters(LettersSuite):
    pass


class TestDeliveries(DeliveriesSuite):
    pass


class TestCircuits(CircuitsSuite):
    pass


class TestTwoKeys(TwoKeysSuite):
    pass

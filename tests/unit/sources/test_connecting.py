"""What a broker has refused is remembered, up to a number."""

from noetl.sources.connecting import MOST_REFUSALS, _Client, forbidden, refusals


def refused(subject):
    return RuntimeError(f'nats: Permissions Violation for Publish to "{subject}"')


def test_what_was_refused_last_is_known_and_what_was_before_a_task_does_not_concern_it():
    client = _Client()
    assert forbidden(client, 0, "orders.1") is None
    for number in range(MOST_REFUSALS + 1):
        client.hear(refused(f"Orders.{number}."))
    client.hear(RuntimeError("nats: slow consumer"))
    assert (refusals(client), len(client.refusals)) == (MOST_REFUSALS + 1, MOST_REFUSALS)
    assert forbidden(client, 0, "Orders.0.") is None  # forgotten
    found = forbidden(client, MOST_REFUSALS, f"Orders.{MOST_REFUSALS}.")
    assert (found.kind, found.code) == ("auth", "subject_forbidden")
    assert forbidden(client, MOST_REFUSALS, "Orders.7.") is None  # before the task began
    assert forbidden(client, MOST_REFUSALS + 1, f"Orders.{MOST_REFUSALS}.") is None

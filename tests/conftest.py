"""The servers that tests share, their order, and what Hypothesis may not judge."""

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = [
    "tests.strict",
    "tests.servers.postgres",
    "tests.servers.nats",
    "tests.servers.kafka",
    "tests.servers.pubsub",
    "tests.servers.mcp",
    "tests.servers.objects",
    "tests.servers.gcs",
    "tests.servers.stack",
    "tests.servers.gateway",
]

# How long an example takes, or takes to be made, tells how busy the machine is.
settings.register_profile("ours", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ours")

LONG_S = 120
"""Tests that may take longer than this begin first, lest everybody waits for one at the end."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Put what takes long at the front of what each process begins with."""
    count = getattr(config, "workerinput", {}).get("workercount", 1)
    long, others = [], []
    for item in items:
        (long if _may_last(item) > LONG_S else others).append(item)
    firsts = [long[number::count] for number in range(count)]
    items[:] = []
    for number, first in enumerate(firsts):
        begin, end = (len(others) * part // count for part in (number, number + 1))
        items += [*first, *others[begin:end]]


def _may_last(item):
    mark = item.get_closest_marker("timeout")
    return mark.args[0] if mark is not None and mark.args else 0

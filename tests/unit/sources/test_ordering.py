from __future__ import annotations

import dataclasses

import pytest

from noetl.dsl.subscription.document import Dispatch, Keda, Runtime, Scaling, SubscriptionSpec
from noetl.dsl.subscription.spool import Circuit, Downstream, Spool
from noetl.sources.directives import Plan
from noetl.sources.ordering import (
    downstream_of,
    downstreams_of,
    is_kept_by_one,
    is_ordered,
    lane_of,
)

MESSAGE = {
    "id": "S:7",
    "data": {"meter": "m-9", "deep": {"n": 4}, "site": "of-data"},
    "headers": {"device_id": "of-header", "both": "of-header"},
    "attributes": {"both": "of-attribute", "Zone": "z1"},
    "metadata": {"partition": 3},
    "ordering_key": "k",
}


def spec(**spool):
    made = Spool(**spool) if spool else None
    return SubscriptionSpec(source="nats", mode="pull", dispatch=Dispatch(playbook="a"), spool=made)


@pytest.mark.parametrize(
    ("name", "lane"),
    [
        (None, "k"),
        ("device_id", "of-header"),
        ("Device_ID", "of-header"),
        ("both", "of-header"),
        ("Zone", "z1"),
        ("site", "of-data"),
        ("message.data.meter", "m-9"),
        ("message.data.deep.n", "4"),
        ("message.attributes.Zone", "z1"),
        ("message.metadata.partition", "3"),
        ("message.data.nothing.there", ""),
        ("nothing", ""),
        ("message.data.deep", '{"n": 4}'),
    ],
)
def test_the_key_of_a_lane(name, lane):
    assert lane_of(spec(ordering_key=name), MESSAGE) == lane


def test_without_a_spool_the_key_of_the_source_counts():
    assert lane_of(spec(), MESSAGE) == "k"
    assert lane_of(spec(), {**MESSAGE, "ordering_key": None}) == ""


def test_a_global_order_has_one_lane_and_none_has_one_each():
    assert lane_of(spec(ordering="global"), MESSAGE) == ""
    assert lane_of(spec(ordering="none"), MESSAGE) == "S:7"


@pytest.mark.parametrize(
    ("ordering", "lane", "expected"),
    [
        ("per_key", "a", True),
        ("per_key", "", False),
        ("global", "", True),
        ("none", "a", False),
        ("none", "", False),
    ],
)
def test_what_is_pushed_without_a_key_needs_no_order(ordering, lane, expected):
    assert is_ordered(spec(ordering=ordering), lane) is expected


def test_a_long_key_is_a_short_lane_of_its_own():
    lanes = {lane_of(spec(), {**MESSAGE, "ordering_key": "x" * 1000 + last}) for last in "ab"}
    assert len(lanes) == 2
    assert all(len(lane) < 128 for lane in lanes)


@pytest.mark.parametrize(
    ("declared", "pool", "expected"),
    [
        ((), "iot", "default"),
        (("tsdb", "iot"), "iot", "iot"),
        (("tsdb", "default"), "iot", "default"),
        (("tsdb", "crm"), "iot", "tsdb"),
    ],
    ids=["none declared", "of the pool", "default", "first"],
)
def test_a_message_belongs_to_one_downstream(declared, pool, expected):
    circuit = Circuit(downstream=tuple(Downstream(name=name) for name in declared))
    found = downstream_of(spec(circuit=circuit), Plan(playbook="a", execution_pool=pool))
    assert found == expected


def test_without_a_declared_downstream_there_is_one_that_is_passive():
    assert [(one.name, one.probe) for one in downstreams_of(spec())] == [("default", "passive")]


@pytest.mark.parametrize(
    ("most", "scaled", "ordering", "expected"),
    [
        (1, None, "per_key", True),
        (1, 1, "per_key", True),
        (1, 4, "per_key", False),
        (2, None, "per_key", False),
        (2, 1, "per_key", False),
        (1, 1, "none", False),
    ],
)
def test_one_process_keeps_the_order_when_there_is_never_another(most, scaled, ordering, expected):
    keda = None if scaled is None else Scaling(keda=Keda(trigger="nats-jetstream", max=scaled))
    made = dataclasses.replace(
        spec(ordering=ordering), runtime=Runtime(max_instances=most), scaling=keda
    )
    assert is_kept_by_one(made) is expected

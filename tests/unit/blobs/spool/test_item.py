import json
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.blobs.naming import parsed
from noetl.blobs.spool.item import (
    Corrupt,
    Item,
    Keys,
    again,
    key_of,
    name_of,
    parts_of_name,
    ref_of,
    seq_of,
    sha256_of,
    spooled_at,
)
from tests.unit.blobs.spool.samples import NOON, item

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


def test_an_item_is_one_json_object_with_the_fields_of_the_contract():
    one = item(idempotency_key=None, dedup_key="t:1")
    assert json.loads(one.encode()) == {
        "v": 1,
        "subscription": "subscriptions/meters",
        "source": "kafka",
        "message_id": "t:1",
        "idempotency_key": None,
        "dedup_key": "t:1",
        "recv_seq": one.recv_seq,
        "ordering_key": "m-9",
        "downstream": "tsdb",
        "dispatch_key": "m:k-1",
        "sha256": one.sha256,
        "attempts": 0,
        "spooled_at": "2026-05-01T10:00:00.000Z",
        "reason": "circuit_open",
        "spec_version": 4,
        "plan": one.plan,
        "message": one.message,
    }


def test_an_item_keeps_the_keys_of_its_first_start_where_it_has_more_than_one():
    keys = Keys(key="m:k-1", window_secs=60, replay_key="r", replay_window_secs=600)
    one = item(dedup=keys)
    shown = {
        "key": "m:k-1", "window_secs": 60, "replay_key": "r", "replay_window_secs": 600,
    }  # fmt: skip
    assert json.loads(one.encode())["dedup"] == shown
    assert Item.decode(one.encode()).dedup == keys
    assert Item.decode(one.attempted(is_new_run=True).encode()).dedup == keys
    assert one.sha256 == item().sha256


def test_an_item_without_them_is_what_it_always_was():
    one = item()
    assert "dedup" not in json.loads(one.encode())
    assert Item.decode(one.encode()) == one


def test_the_digest_covers_canonical_json_of_message_and_plan():
    text = '{"message":{"a":{"z":2.5,"é":1},"id":"1"},"plan":{"playbook":"p"}}'
    made = sha256_of({"id": "1", "a": {"é": 1, "z": 2.5}}, {"playbook": "p"})
    assert made == sha256(text.encode()).hexdigest()


@given(data=VALUES)
def test_whatever_a_message_holds_is_read_as_it_was_written(data):
    message = {"id": "1", "data": data}
    one = item(message=message, sha256=sha256_of(message, {}), plan={})
    assert Item.decode(one.encode()) == one


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b"\xff",
        item().encode()[:-1],
        item().encode() + b"x",
        item().encode().replace(b'"n":1', b'"n":2'),
        item().encode().replace(b'"v":1', b'"v":2'),
        item().encode().replace(b'"attempts"', b'"attempt3"'),
        item(recv_seq="x").encode(),
        item(recv_seq="0").encode(),
        item(recv_seq=str(1 << 63)).encode(),
        b"[" * 100_000,
    ],
    ids=range(14),
)
def test_what_is_not_what_was_stored_is_corrupt(data):
    with pytest.raises(Corrupt):
        Item.decode(data)


@given(place=st.integers(min_value=0), bit=st.integers(0, 7))
def test_a_flipped_bit_in_message_or_plan_is_found(place, bit):
    data = bytearray(item().encode())
    start = data.index(b'"plan"')
    data[start + place % (len(data) - start)] ^= 1 << bit
    with pytest.raises(Corrupt):
        Item.decode(bytes(data))


def test_attempts_are_outside_of_the_digest():
    one = item().attempted()
    assert (one.attempts, one.dispatch_key) == (1, "m:k-1")
    assert Item.decode(one.encode()) == one
    assert one.attempted(is_new_run=True).dispatch_key == "m:k-1#r1"
    assert (one.redriven().attempts, one.redriven().dispatch_key) == (0, "m:k-1#r1")


def test_a_key_of_a_further_run_counts_on():
    assert again("d:7") == "d:7#r1"
    assert again("d:7#r1") == "d:7#r2"
    assert again("d:7#r99") == "d:7#r100"
    assert again("m:a#rx") == "m:a#rx#r1"


def test_the_key_of_an_item_tells_tenant_subscription_place_and_id():
    assert key_of("default", "subscriptions/meters", "352013", "plant.meters:3:77") == (
        "default/subscriptions/meters/spool/00000000000000352013-plant.meters_3_77.json"
    )
    assert key_of("t", "a", "1", "x" * 200, "dlq") == f"t/a/dlq/{1:020d}-{'x' * 128}.json"
    assert key_of("t", "a/../b", "1", "../é") == f"t/a/%2E./b/spool/{1:020d}-..__.json"


@given(st.lists(st.integers(1, (1 << 63) - 1), min_size=2, max_size=2))
def test_names_in_lexical_order_are_items_in_receive_order(places):
    first, second = sorted(places)
    assert name_of(str(first), "z") <= name_of(str(second), "z")
    assert parts_of_name(name_of(str(first), "a:b")) == (first, "a_b")


@pytest.mark.parametrize(
    "name",
    ["readme.txt", "1-a.json", f"{0:020d}-a.json", f"{1 << 63:020d}-a.json", f"{1:020d}-a.tmp",
     f"{1:020d}-a b.json", f"{1:020d}-{'x' * 129}.json", f"{1:020d}-a.json\n"],
    ids=range(8),
)  # fmt: skip
def test_a_name_that_is_not_ours_is_foreign(name):
    assert parts_of_name(name) is None


def test_a_reference_names_the_item():
    ref = ref_of("subscriptions/meters", "352", "plant:3:7/7 é")
    assert ref == "noetl://spool/subscriptions/meters/352/plant%3A3%3A7%2F7%20%C3%A9"
    assert (parsed(ref).form, parsed(ref).name) == ("spool", "subscriptions/meters")


def test_a_place_in_the_order_is_a_snowflake():
    assert [seq_of(text) for text in ("7", "0", "-1", "x", "٣", "1" * 20)] == [7] + [None] * 5


def test_the_time_of_an_item_has_milliseconds():
    assert spooled_at(NOON.replace(microsecond=123_456)) == "2026-05-01T12:00:00.123Z"

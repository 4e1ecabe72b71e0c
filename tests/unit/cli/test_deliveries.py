import base64
import hashlib
import hmac
import json
from itertools import count

import pytest

from noetl.api.catalog import Register
from noetl.api.subscriptions import PutDeliveries, PutDelivery
from noetl.clock import rfc3339
from noetl.server.fleet.gateways import over_sockets
from tests.servers.memory import MemoryServer
from tests.unit.cli.gatehouse import HOOKS, SECRET, Gatehouse
from tests.unit.cli.runs import FAILING, NOOP, register, start

NUMBERS = count(1)
TAKEN = (202, {"status": "accepted", "execution_id": "7", "delivery_id": "8"})


def one(result):
    assert result.code == 0, result.err
    return json.loads(result.out)


@pytest.fixture(scope="module")
def served():
    """A server that knows the way to gateways."""
    with MemoryServer(gateways=over_sockets) as server:
        yield server


@pytest.fixture
def path(served):
    """A listener of webhooks that is active."""
    number = next(NUMBERS)
    name = f"shop/orders{number}"

    async def make(client):
        content = HOOKS.format(path=name, listener=f"orders-{number}")
        await client.register(Register(content=content))
        made = await client.register_subscription(name)
        await client.steer_subscription(made.subscription_id, "activate")

    served.call(make)
    return name


@pytest.fixture
def house(served):
    with Gatehouse([TAKEN]) as made:
        served.call(made.join)
        yield made


def told(served, path, *items):
    """Tell the server of deliveries, as a gateway does; their ids."""

    async def work(client):
        (known,) = (await client.subscriptions(path=path)).subscriptions
        at = rfc3339(served.clock.now())
        rows = tuple(
            PutDelivery(delivery_id=served.ids.new(), at=at, duration_ms=12.4, **item)
            for item in items
        )
        await client.put_deliveries(known.subscription_id, PutDeliveries(items=rows))
        return [row.delivery_id for row in rows]

    return served.call(work)


ACCEPTED = {"outcome": "accepted", "status": 202, "message_id": "g-1"}
FORGED = {
    "outcome": "rejected", "reason": "bad_signature", "status": 401, "bytes": 17,
    "message_id": "0123456789abcdef" * 4,
}  # fmt: skip


def test_deliveries_are_listed_narrowed_and_shown(remote, served, path):
    first, second = told(served, path, ACCEPTED, FORGED)

    listed = one(remote("subscriptions", "deliveries", path, "-o", "json"))["items"]
    assert {item["delivery_id"] for item in listed} == {first, second}
    for words, found in (
        (("--outcome", "rejected"), [second]),
        (("--reason", "bad_signature", "--since", "1h"), [second]),
        (("--message-id", "g-1"), [first]),
        (("--until", "1h"), []),
    ):
        names = remote("subscriptions", "deliveries", path, *words, "-o", "name").out.split()
        assert names == [f"delivery/{one}" for one in found], words
    table = remote("subscriptions", "deliveries", path, "--reason", "bad_signature").out
    assert table.split()[:3] == ["DELIVERY", "AT", "OUTCOME"]
    assert all(word in table for word in (second, "rejected", "bad_signature", "401", "12"))
    assert (" 0123456789abcdef0123456… " in table, FORGED["message_id"] in table) == (True, False)
    shown = one(remote("subscriptions", "deliveries", path, f"delivery/{second}", "-o", "json"))
    assert (shown["delivery_id"], shown["reason"], shown["bytes"]) == (second, "bad_signature", 17)
    assert "bad_signature" in remote("subscriptions", "deliveries", path, second).out


def test_a_delivery_that_is_not_there_and_a_filter_beside_one_are_told(remote, path):
    missing = remote("subscriptions", "deliveries", path, "77")
    assert (missing.code, missing.out) == (5, "")
    wrong = remote("subscriptions", "deliveries", path, "77", "--outcome", "accepted")
    assert (wrong.code, "exclude each other" in wrong.err) == (2, True)
    assert remote("subscriptions", "deliveries", path, "--since", "soon").code == 2
    assert "nothing was delivered" in remote("subscriptions", "deliveries", path).err


def test_a_delivery_is_replayed_by_its_id_and_by_a_filter(remote, served, path):
    run = start(served, "examples/hello")
    ids = told(served, path, ACCEPTED | {"execution_id": run}, ACCEPTED | {"execution_id": run})

    words = ("subscriptions", "replay", path)
    done = one(remote(*words, f"delivery/{ids[0]}", "--because", "tried", "-o", "json"))
    assert (done["delivery_id"], done["status"]) == (ids[0], "started")
    assert done["execution_id"] not in {None, run}
    name = remote(*words, ids[0], "-o", "name").out.strip()
    assert name.startswith("execution/")
    assert name != f"execution/{done['execution_id']}"

    found = one(remote(*words, "--message-id", "g-1", "--limit", "2", "-o", "json"))["items"]
    assert [item["delivery_id"] for item in found] == ids
    assert {item["status"] for item in found} == {"started"}
    table = remote(*words, "--message-id", "g-1", "--limit", "2")
    assert table.out.split()[:4] == ["DELIVERY", "STATUS", "EXECUTION", "CODE"]
    assert "there may be more" in table.err
    assert "no such delivery" in remote(*words, "--outcome", "spooled").err


def test_what_cannot_be_replayed_ends_otherwise(remote, served, path):
    (forged,) = told(served, path, FORGED)
    words = ("subscriptions", "replay", path)

    alone = remote(*words, forged, "-o", "json")
    assert (alone.code != 0, alone.out) == (True, "")
    assert json.loads(alone.err)["error"]["details"]["status"] == "not_replayable"
    many = remote(*words, "--outcome", "rejected")
    assert (many.code, "not_replayable" in many.out) == (6, True)
    assert "error[bulk_failed]: 1 of 1 deliveries were not replayed" in many.err
    assert remote(*words).code == 2
    assert remote(*words, forged, "--outcome", "rejected").code == 2


def test_a_delivery_is_signed_and_sent(remote, house, path):
    words = ("subscriptions", "test", path, "--header", "x-github-event: push")
    sent = one(remote(*words, "--data", '{"n": 1}', "--query", "?a=b", "-o", "json"))

    assert sent == {
        "status": 202, "delivery_id": "8", "execution_id": "7", "outcome": "accepted",
    }  # fmt: skip
    (at, headers, body) = house.asked[0]
    assert (at.startswith("/ingress/orders-"), at.endswith("?a=b")) == (True, True)
    assert (headers["x-github-event"], body) == ("push", b'{"n": 1}')
    digest = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    assert headers["x-hub-signature-256"] == f"sha256={digest}"
    assert remote(*words, "--data", "{}", "-o", "name").out == "execution/7\n"
    assert "execution_id" in remote(*words, "--data", "{}").out


def test_the_body_may_be_a_file_standard_input_and_any_bytes(noetl, remote, house, path, tmp_path):
    del remote  # it says which server is meant
    (tmp_path / "body").write_bytes(b"\xff\x00\xfe")
    words = ("subscriptions", "test", path, "--body")

    assert noetl(*words, "body").code == 0
    assert noetl(*words, "-", stdin=b"typed").code == 0
    assert [body for _, _, body in house.asked] == [b"\xff\x00\xfe", b"typed"]
    assert noetl(*words, "nowhere").code == 5
    assert noetl("subscriptions", "test", path).code == 2
    assert noetl(*words, "body", "--data", "x").code == 2
    (tmp_path / "large").write_bytes(bytes((10 << 20) + 1))
    assert noetl(*words, "large").code == 2
    for wrong in ("x-kind", ": order"):
        assert noetl(*words, "body", "--header", wrong).code == 2
    assert base64.b64encode(b"\xff\x00\xfe") not in b"".join(body for _, _, body in house.asked)


@pytest.mark.parametrize(
    "refusal",
    [
        (401, "bad_signature", 4), (403, "misconfigured", 4), (400, "bad_envelope", 7),
        (413, "body_too_large", 7), (404, "unknown_listener", 5), (410, "deactivated", 1),
        (429, "rate_limited", 11), (503, "circuit_open", 11), (502, "dispatch_failed", 10),
    ],
)  # fmt: skip
def test_a_refusal_ends_as_its_status_does(remote, house, path, refusal):
    status, code, ends = refusal
    house.answers[:] = [(status, {"type": "/", "status": status, "code": code})]
    done = remote("subscriptions", "test", path, "--data", "{}", "-o", "json")

    fault = json.loads(done.err)["error"]
    assert (done.code, done.out, fault["code"], fault["status"]) == (ends, "", code, status)
    assert "noetl login" not in fault["hint"]
    assert f"error[{code}]" in remote("subscriptions", "test", path, "--data", "{}").err


@pytest.mark.parametrize("ends", [0, 3])
def test_the_end_of_the_run_is_waited_for(remote, served, house, path, ends):
    run = start(served, f"shop/waited{ends}", FAILING if ends else NOOP)
    house.answers[:] = [(202, {"status": "accepted", "execution_id": run, "delivery_id": "8"})]
    done = remote("subscriptions", "test", path, "--data", "{}", "--wait", "-o", "json")

    assert done.code == ends, done.err
    assert json.loads(done.out)["execution_id"] == run


def test_without_a_run_there_is_nothing_to_wait_for(remote, house, path):
    house.answers[:] = [(202, {"status": "spooled", "delivery_id": "8"})]
    done = remote("subscriptions", "test", path, "--data", "{}", "--wait")

    assert (done.code, "the delivery was spooled" in done.err) == (8, True)
    assert remote("subscriptions", "test", path, "--data", "{}", "-o", "name").out == "delivery/8\n"


def test_a_listener_that_fetches_for_itself_takes_no_delivery(remote, served):
    text = HOOKS.format(path="shop/pulled", listener="x").partition("spec:")[0]
    text += (
        "spec:\n  source: nats\n  mode: pull\n  url: nats://127.0.0.1:4222\n  stream: S\n"
        "  consumer: c\n  dispatch: {playbook: shop/any}\n"
    )
    register(served, "", text)
    served.call(lambda client: client.register_subscription("shop/pulled"))

    assert remote("subscriptions", "test", "shop/pulled", "--data", "{}").code == 7

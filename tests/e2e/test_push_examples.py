"""Every push of the examples: a signed delivery becomes a run, a changed one does not."""

import json
import shutil
from pathlib import Path

import pytest

from noetl.dsl.parse import parse
from noetl.dsl.subscription.document import Subscription
from noetl.gateway.ingress.challenge import challenge_of, echo_of
from noetl.gateway.ingress.envelope import Arrival, message_of
from noetl.gateway.ingress.raw import Raw
from noetl.gateway.ingress.replay import dedup_of
from noetl.gateway.ingress.verify.verdict import Known, Rejected, Verified, verify
from noetl.sources.directives import resolve
from noetl.sources.workloads import workload_of
from tests.e2e.playing import Theatre
from tests.unit.gateway.ingress.senders import NOW, SECRET, b64, digest, issuer, keys

FOLDER = Path(__file__).parents[2] / "examples" / "subscriptions"
ALIASES = ("shop_hook", "github_hook", "stripe_hook", "slack_hook", "events_token")
SECRETS = {alias: {"value": SECRET} for alias in ALIASES}
ORDER = {"order": 7, "customer": "ada", "lines": [{"cents": 250, "count": 2}, {"cents": 99}]}
PUSHED = {"ref": "refs/heads/main", "commits": [{}, {}], "repository": {"full_name": "ada/mill"}}
PAID = {
    "id": "evt_7", "type": "payment_intent.succeeded",
    "data": {"object": {"amount": 1250, "currency": "chf"}},
}  # fmt: skip
SAID = {"type": "event_callback", "event_id": "Ev7", "event": {"user": "U7", "text": "hello"}}
SCAN = {"parcel": "p-7", "place": "Bern"}
MESSAGE = {
    "message": {
        "data": b64(json.dumps(SCAN).encode()), "messageId": "77", "orderingKey": "p-7",
        "attributes": {"scanner": "s-1", "idempotency-key": "scan-7"},
    },
    "subscription": "projects/my-project/subscriptions/scans",
}  # fmt: skip
EVENT = {"specversion": "1.0", "id": "e-7", "type": "parcel.scanned", "source": "/scanners/1"}


def hmac(body, kind=""):
    made = digest(f"{NOW}.".encode() + body).hex()
    told = {"x-shop-signature": made, "x-shop-time": str(NOW), "x-shop-delivery": "d-7"}
    return told | ({"x-shop-kind": kind} if kind else {})


def github(body):
    made = f"sha256={digest(body).hex()}"
    return {"x-hub-signature-256": made, "x-github-delivery": "g-7", "x-github-event": "push"}


def stripe(body):
    return {"stripe-signature": f"t={NOW},v1={digest(f'{NOW}.'.encode() + body).hex()}"}


def slack(body):
    made = f"v0={digest(f'v0:{NOW}:'.encode() + body).hex()}"
    return {"x-slack-signature": made, "x-slack-request-timestamp": str(NOW)}


def pubsub(_):
    config = document("push-pubsub").spec.ingress.verify
    claims = {
        "iss": "https://accounts.google.com", "aud": config.audience, "sub": "1",
        "email": config.service_account, "email_verified": True, "iat": NOW, "exp": NOW + 300,
    }  # fmt: skip
    return {"authorization": f"Bearer {issuer('RS256').signed(claims)}"}


def bearer(_):
    told = {"authorization": f"Bearer {SECRET}", "content-type": "text/plain"}
    return told | {f"ce-{name}": value for name, value in EVENT.items()}


CASES = {
    "push-hmac": (hmac, ORDER, "take_order", {"order": 7, "cents": 599}, "7"),
    "push-github": (
        github, PUSHED, "note_push", {"event": "push", "repository": "ada/mill", "commits": 2},
        "g-7",
    ),
    "push-stripe": (stripe, PAID, "book_payment", {"event": "evt_7", "booked": "12.50 CHF"},
                    "evt_7"),
    "push-slack": (slack, SAID, "hear_mention", {"by": "U7", "said": "hello"}, "Ev7"),
    "push-pubsub": (
        pubsub, MESSAGE, "store_scan",
        {"parcel": "p-7", "place": "Bern", "by": "s-1", "key": "p-7"}, "scan-7",
    ),
    "push-cloudevents": (
        bearer, "scanned", "note_event",
        {"id": "e-7", "type": "parcel.scanned", "source": "/scanners/1"}, "e-7",
    ),
}  # fmt: skip


def document(name):
    parsed = parse((FOLDER / f"{name}.yaml").read_bytes())
    assert isinstance(parsed.model, Subscription), parsed.errors
    return parsed.model


def raw_of(model, body, headers):
    pairs = tuple((name.encode(), value.encode()) for name, value in headers.items())
    path = model.spec.ingress.gateway_path
    return Raw(method="POST", path=path, query=b"", headers=pairs, body=body)


def judged(model, raw, now=NOW):
    known = Known(secrets=SECRETS, keys=keys(issuer("RS256")))
    return verify(model.spec.ingress.verify, raw, now, known)


def planned(model, verified):
    """The message of a verified delivery, and what its headers may decide."""
    listener = model.spec.ingress.gateway_path.removeprefix("/ingress/")
    arrival = Arrival(
        source=model.spec.source, listener=listener, delivery_id="1", remote_ip="203.0.113.7",
        received_at="2026-01-01T00:00:00Z",
    )  # fmt: skip
    message = message_of(verified, model.spec.ingress.verify, verified.raw.body, arrival)
    return message, resolve(model.spec, message["headers"])


@pytest.fixture(scope="module")
def theatre(tmp_path_factory):
    copy = tmp_path_factory.mktemp("run") / "examples"
    shutil.copytree(FOLDER, copy / "subscriptions")
    made = Theatre(copy.parent)
    yield made
    made.close()


def test_every_push_of_the_examples_has_a_case():
    assert sorted(path.stem for path in FOLDER.glob("push-*.yaml")) == sorted(CASES)


def test_every_playbook_of_the_examples_is_started_by_a_subscription():
    started = {case[2] for case in CASES.values()} | {"take_return"}
    others = {"store_reading", "raise_alarm", "readings"}  # test_subscriptions_up.py

    files = {path.stem for path in FOLDER.glob("*.yaml") if not path.stem.endswith(".test")}
    assert files - set(CASES) - others == started


@pytest.mark.parametrize("name", CASES)
def test_a_signed_delivery_becomes_a_run(theatre, name):
    sign, body, playbook, result, key = CASES[name]
    model = document(name)
    sent = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    verified = judged(model, raw_of(model, sent, sign(sent)))
    assert isinstance(verified, Verified), verified

    message, plan = planned(model, verified)
    dedup = dedup_of(
        model.spec.ingress, verified, message, idempotency_key=plan.idempotency_key, fresh="1"
    )
    assert dedup["key"] == f"m:{key}"
    assert (plan.playbook, plan.execution_pool) == (f"examples/subscriptions/{playbook}", "shared")
    workload = workload_of(
        message, plan, subscription_path=model.metadata.path, source=model.spec.source
    )
    assert SECRET not in json.dumps(workload)
    done = theatre.run(theatre.folder / "examples/subscriptions" / f"{playbook}.yaml", workload)
    assert (done.as_json()["status"], done.as_json()["result"]) == ("COMPLETED", result)


@pytest.mark.parametrize("name", [name for name in CASES if name not in {
    "push-pubsub", "push-cloudevents",  # their tokens sign no body
}])  # fmt: skip
def test_one_byte_changed_is_refused(name):
    sign, body, *_ = CASES[name]
    sent = json.dumps(body).encode()
    model = document(name)

    found = judged(model, raw_of(model, sent.replace(b"7", b"8", 1) + b" ", sign(sent)))
    assert found == Rejected("bad_signature")


def test_a_return_takes_the_other_way(theatre):
    model = document("push-hmac")
    sent = json.dumps(ORDER).encode()
    verified = judged(model, raw_of(model, sent, hmac(sent, "examples/subscriptions/take_return")))
    message, plan = planned(model, verified)
    assert plan.playbook == "examples/subscriptions/take_return"
    workload = workload_of(message, plan, subscription_path=model.metadata.path, source="webhook")
    file = theatre.folder / "examples/subscriptions/take_return.yaml"
    assert theatre.run(file, workload).as_json()["result"] == {"returned": 7}

    other = judged(model, raw_of(model, sent, hmac(sent, "examples/subscriptions/note_push")))
    assert planned(model, other)[1].playbook == "examples/subscriptions/take_order"


def test_the_handshake_of_slack_is_answered():
    model = document("push-slack")
    sent = json.dumps({"type": "url_verification", "challenge": "3eZbrw1a"}).encode()
    verified = judged(model, raw_of(model, sent, slack(sent)))

    found = echo_of(challenge_of(model.spec.ingress), verified, sent)
    assert found.document == {"challenge": "3eZbrw1a"}

"""Faults of Pub/Sub, and subscriptions as facts, without a service."""

from datetime import timedelta
from types import SimpleNamespace

import pytest
from google.api_core import exceptions
from google.auth.exceptions import DefaultCredentialsError
from google.pubsub_v1.types import DeadLetterPolicy, Subscription

from noetl.clock import SystemClock
from noetl.sources.base import Facts, SourceError
from noetl.sources.places import place_of
from noetl.sources.pubsub import PubsubSource, facts_of, fault_of

PATH = "projects/p/subscriptions/s"
PLACE = place_of("pubsub", {"subscription": PATH, "endpoint": "http://h:1"}, {})


@pytest.mark.parametrize(
    ("fault", "kind", "code", "is_retryable"),
    [
        (exceptions.NotFound("x"), "not_found", "subscription_not_found", False),
        (exceptions.Unauthenticated("x"), "auth", "bad_login", False),
        (DefaultCredentialsError("x"), "auth", "bad_login", False),
        (exceptions.PermissionDenied("x"), "auth", "subscription_forbidden", False),
        (exceptions.DeadlineExceeded("x"), "timeout", "tool_timeout", True),
        (exceptions.ResourceExhausted("x"), "rate_limit", "source_busy", True),
        (exceptions.ServiceUnavailable("x"), "connection", "CONN_RESET", True),
        (exceptions.InvalidArgument("x"), "client_error", "source_refused", False),
    ],
)
def test_faults_of_the_client_are_told_in_our_words(fault, kind, code, is_retryable):
    told = fault_of(fault, PLACE)
    assert (told.kind, told.code, told.is_retryable) == (kind, code, is_retryable)


def test_a_subscription_tells_how_patient_it_is():
    made = Subscription(
        ack_deadline_seconds=30,
        message_retention_duration=timedelta(days=7),
        dead_letter_policy=DeadLetterPolicy(max_delivery_attempts=5),
    )
    assert facts_of(made) == Facts(max_deliver=5, max_age_s=604_800.0, ack_wait_s=30.0)
    assert facts_of(Subscription()) == Facts(ack_wait_s=10.0)


class Service:
    """A client whose every ack fails as it is told."""

    def __init__(self, fault):
        self._fault = fault

    async def acknowledge(self, **_):
        raise self._fault


async def codes(fault, *ack_ids):
    source = PubsubSource(Service(fault), PLACE, SystemClock(), Facts())
    report = await source.ack(ack_ids)
    return {error.ack_id: error.code for error in report.errors}


async def test_ids_that_the_answer_names_are_the_ones_that_failed():
    info = SimpleNamespace(
        metadata={
            "a": "PERMANENT_FAILURE_INVALID_ACK_ID",
            "b": "TRANSIENT_FAILURE_UNORDERED_ACK_ID",
        }
    )
    fault = exceptions.FailedPrecondition("some ids", details=[info])
    assert await codes(fault, "a", "b", "c") == {"a": "stale", "b": "connection"}


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (exceptions.ServiceUnavailable("x"), "connection"),
        (exceptions.DeadlineExceeded("x"), "ack_timeout"),
        (exceptions.InvalidArgument("x"), "stale"),
        (exceptions.PermissionDenied("x"), "refused"),
    ],
)
async def test_an_answer_that_names_none_is_about_them_all(fault, code):
    assert await codes(fault, "a", "b") == {"a": code, "b": code}


@pytest.mark.parametrize("account", [{"type": "service_account"}, {"private_key": "x"}])
async def test_a_key_file_that_is_none_is_told(account):
    place = place_of("pubsub", {"subscription": PATH}, {"service_account": account})
    with pytest.raises(SourceError) as caught:
        await PubsubSource.open(place, SystemClock())
    assert caught.value.message.startswith("/service_account: ")

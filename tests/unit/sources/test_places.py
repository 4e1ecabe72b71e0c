"""Where sources are: fields, credentials, and the name of what is wrong."""

import json
from urllib.parse import quote

import pytest

from noetl.sources.base import SourceError
from noetl.sources.places import Certificates, KafkaPlace, NatsPlace, PubsubPlace, place_of

SECRET = "not to be shown"  # noqa: S105 - of nobody
NATS = {"stream": "S", "consumer": "c"}
KAFKA = {"topic": "plant.meters", "group": "g"}
PATH = "projects/p/subscriptions/readings"
PUBSUB = {"subscription": PATH}
ACCOUNT = {"project_id": "acme", "private_key": "key of acme", "client_email": "a@acme"}


def fault(kind, fields, auth=None):
    with pytest.raises(SourceError) as caught:
        place_of(kind, fields, auth or {})
    return caught.value


def test_a_field_of_the_document_wins_over_that_of_the_credential():
    auth = {"url": "nats://away:4222", "user": "a", "password": SECRET}
    place = place_of("nats", {**NATS, "url": "nats://here:4222", "user": "me"}, auth)
    assert place == NatsPlace(
        servers=("nats://here:4222",), stream="S", consumer="c", user="me", password=SECRET
    )


def test_a_login_inside_the_address_works_and_is_not_shown():
    place = place_of("nats", {**NATS, "url": "nats://me:p%40ss@h:1,h2"}, {})
    assert (place.servers, place.user, place.password) == (
        ("nats://h:1", "nats://h2"), "me", "p@ss",
    )  # fmt: skip
    assert "p@ss" not in repr(place)
    assert place_of("nats", {**NATS, "url": f"nats://{quote(SECRET)}@h"}, {}).token == SECRET
    assert place_of("nats", {**NATS, "url": "nats://tok@h", "user": "u"}, {}).token == ""


def test_brokers_are_a_list_or_a_text():
    wanted = (("a", 9092), ("b", 1), ("::1", 9092))
    for brokers in ("a, b:1,[::1]", ["a", "b:1", "[::1]:9092"], ("a:9092", "b:1", "[::1]")):
        assert place_of("kafka", {**KAFKA, "brokers": brokers}, {}).brokers == wanted


def test_the_login_and_the_certificates_of_kafka_come_from_the_credential():
    auth = {
        "brokers": "k:9093", "sasl_mechanism": "scram-sha-512", "sasl_username": "u",
        "sasl_password": SECRET, "ssl": {"ca": "PEM"},
    }  # fmt: skip
    place = place_of("kafka", KAFKA, auth)
    assert place == KafkaPlace(
        brokers=(("k", 9093),), topic="plant.meters", group="g", mechanism="SCRAM-SHA-512",
        user="u", password=SECRET, tls=Certificates(ca="PEM"),
    )  # fmt: skip
    assert SECRET not in repr(place)
    assert place_of("kafka", KAFKA, {**auth, "ssl": True}).tls == Certificates()
    assert place_of("kafka", KAFKA, {**auth, "ssl": False}).tls is None


def test_a_user_without_a_mechanism_signs_in_plainly():
    place = place_of("kafka", {**KAFKA, "brokers": "k", "user": "u", "password": "p"}, {})
    assert (place.mechanism, place.user, place.password) == ("PLAIN", "u", "p")


def test_a_short_name_of_pubsub_needs_the_project_of_its_credential():
    for account in (ACCOUNT, json.dumps(ACCOUNT)):
        place = place_of("pubsub", {"subscription": "readings"}, {"service_account": account})
        assert place.subscription == "projects/acme/subscriptions/readings"
        assert "key of acme" in place.account
        assert "key of acme" not in repr(place)
    assert "projects/" in fault("pubsub", {"subscription": "r", "token": "t"}).message


@pytest.mark.parametrize(
    ("endpoint", "emulator", "expected"),
    [
        ("http://127.0.0.1:8085", "", ("127.0.0.1:8085", True)),
        ("http://h", "", ("h:80", True)),
        ("https://europe-pubsub.googleapis.com", "", ("europe-pubsub.googleapis.com:443", False)),
        ("h:9000", "", ("h:9000", False)),
        (None, "127.0.0.1:8085", ("127.0.0.1:8085", True)),
        ("https://h", "127.0.0.1:8085", ("h:443", False)),
    ],
)
def test_an_emulator_or_a_plain_endpoint_asks_nobody_who_they_are(endpoint, emulator, expected):
    place = place_of("pubsub", {**PUBSUB, "endpoint": endpoint}, {}, emulator=emulator)
    assert (place.endpoint, place.is_open) == expected


def test_a_credential_without_secrets_is_the_identity_of_the_machine():
    place = place_of("pubsub", PUBSUB, {"type": "gcp", "project": "p"})
    assert place == PubsubPlace(subscription=PATH)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [("nats", NATS), ("kafka", KAFKA), ("pubsub", PUBSUB)],
)
def test_a_source_without_a_connection_has_none(kind, fields):
    told = fault(kind, fields)
    assert (told.kind, told.code) == ("config", "connection_missing")
    assert "no default connection" in told.message


@pytest.mark.parametrize(
    ("kind", "fields", "name"),
    [
        ("webhook", {}, "/source"),
        ("nats", {"url": "nats://h", "consumer": "c"}, "/stream"),
        ("nats", {"url": "nats://h", "stream": "S"}, "/consumer"),
        ("nats", {**NATS, "url": "http://h"}, "/url"),
        ("nats", {**NATS, "url": "nats://h:x"}, "/url"),
        ("nats", {**NATS, "url": "nats://h", "endpoint": "x"}, "/endpoint"),
        ("kafka", {"brokers": "k", "group": "g"}, "/topic"),
        ("kafka", {"brokers": "k", "topic": "t"}, "/group"),
        ("kafka", {**KAFKA, "topic": "a b", "brokers": "k"}, "/topic"),
        ("kafka", {**KAFKA, "brokers": "k:x"}, "/brokers"),
        ("kafka", {**KAFKA, "brokers": ["k/a"]}, "/brokers"),
        ("kafka", {**KAFKA, "brokers": {"a": 1}}, "/brokers"),
        ("kafka", {**KAFKA, "brokers": "k", "url": "kafka://k"}, "/url"),
        ("kafka", {**KAFKA, "brokers": "k", "sasl_mechanism": "GSSAPI"}, "/sasl_mechanism"),
        ("kafka", {**KAFKA, "brokers": "k", "sasl_mechanism": "PLAIN"}, "/sasl_username"),
        ("kafka", {**KAFKA, "brokers": "k", "ssl": "maybe"}, "/ssl"),
        ("kafka", {**KAFKA, "brokers": "k", "ssl": {"certt": "x"}}, "/ssl"),
        ("pubsub", {"endpoint": "http://h"}, "/subscription"),
        ("pubsub", {"endpoint": "http://h", "subscription": "a/b"}, "/subscription"),
        ("pubsub", {**PUBSUB, "endpoint": "ftp://h"}, "/endpoint"),
        ("pubsub", {**PUBSUB, "endpoint": "http://h:x"}, "/endpoint"),
        ("pubsub", {**PUBSUB, "endpoint": "http://h", "user": "u"}, "/user"),
        ("pubsub", {**PUBSUB, "token": "t", "service_account": "{"}, "/service_account"),
        ("pubsub", {**PUBSUB, "token": "t", "service_account": "[]"}, "/service_account"),
    ],
)
def test_what_is_missing_or_wrong_is_named(kind, fields, name):
    told = fault(kind, fields)
    assert (told.kind, told.code) == ("config", "invalid_config")
    assert told.message.startswith(f"{name}: ")

"""The names of the bus are a contract: the worker, autoscalers and operators know them as text."""

import re

import pytest

from noetl.bus import subjects


def test_every_name_is_as_the_specification_writes_it():
    assert {
        "streams": [subjects.COMMANDS_STREAM, subjects.EVENTS_STREAM, subjects.CLIENTS_STREAM],
        "stream subjects": [subjects.COMMANDS, subjects.EVENTS, subjects.CLIENTS],
        "commands": subjects.commands("shared", "331204559102443520"),
        "filter": subjects.commands_of("shared"),
        "consumer": subjects.consumer("gpu-1"),
        "events": subjects.events("acme", "main", "331204559102443520", 3),
        "control": subjects.control("system"),
        "clients": subjects.clients("c-1"),
        "live": subjects.live("c-1"),
        "revoked": subjects.revoked("s1"),
        "ingress": subjects.ingress("orders"),
        "buckets": [
            subjects.SESSIONS_BUCKET,
            subjects.REQUESTS_BUCKET,
            subjects.CIRCUITS_BUCKET,
            subjects.SPOOL_STORE,
        ],
    } == {
        "streams": ["NOETL_COMMANDS", "NOETL_EVENTS", "NOETL_CLIENTS"],
        "stream subjects": ["noetl.commands.>", "noetl.events.>", "noetl.clients.>"],
        "commands": "noetl.commands.shared.331204559102443520",
        "filter": "noetl.commands.shared.>",
        "consumer": "noetl_worker_pool_gpu-1",
        "events": "noetl.events.acme.main.331204559102443520.3",
        "control": "noetl.control.system",
        "clients": "noetl.clients.c-1",
        "live": "noetl.live.c-1",
        "revoked": "noetl.gateway.revoked.s1",
        "ingress": "noetl.gateway.ingress.orders",
        "buckets": ["sessions", "requests", "circuits", "noetl_spool"],
    }


@pytest.mark.parametrize(
    ("name", "reduced"),
    [
        ("acme", "acme"),
        ("Ac_me-9", "Ac_me-9"),
        ("a.b", "a_b"),
        (">", "_"),
        ("*", "_"),
        ("a b\n", "a_b_"),
        ("größe", "gr__e"),
        ("", "_"),
    ],
)
def test_a_name_becomes_one_token_of_plain_characters(name, reduced):
    assert subjects.token(name) == reduced
    assert re.fullmatch(r"[A-Za-z0-9_-]+", reduced)
    assert subjects.events(name, name, "1", 0).count(".") == 5


@pytest.mark.parametrize(
    ("subject", "pool"),
    [
        ("noetl.commands.shared.7", "shared"),
        ("noetl.commands.shared", None),
        ("noetl.commands.shared.7.8", None),
        ("noetl.events.a.b", None),
        ("x.commands.a.b", None),
    ],
)
def test_the_pool_of_a_hint_is_in_its_subject(subject, pool):
    assert subjects.pool_of(subject) == pool


@pytest.mark.parametrize(
    ("pattern", "subject", "is_match"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a.c", False),
        ("a.b", "a", False),
        ("a.b", "a.b.c", False),
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*.c", "a.b.c", True),
        ("a.>", "a.b.c", True),
        ("a.>", "a.b", True),
        ("a.>", "a", False),
        (">", "a", True),
    ],
)
def test_a_pattern_matches_by_token(pattern, subject, is_match):
    assert subjects.matches(pattern, subject) is is_match

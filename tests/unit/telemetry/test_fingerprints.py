"""Fingerprints: secrets are found in any form, by what is kept of them, which is no value."""

from __future__ import annotations

import base64
import io
import json
import logging
import time
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from noetl.telemetry.fingerprints import Fingerprints
from noetl.telemetry.log import Lines
from noetl.telemetry.redact import Redactor

SECRET = 'finger canary/"1977"+x'  # noqa: S105 - a canary


def test_every_form_is_covered_wherever_it_stands() -> None:
    seen = Fingerprints()
    seen.add(SECRET)
    forms = (
        SECRET, json.dumps(SECRET)[1:-1], quote(SECRET, safe=""),
        base64.b64encode(SECRET.encode()).decode(),
    )  # fmt: skip
    for form in forms:
        assert seen.masked(form) == "***", form
        assert seen.masked(f"a {form}, b {form}") == "a ***, b ***"
    assert seen.masked("finger canary of another kind") == "finger canary of another kind"


def test_secrets_that_overlap_are_covered_together() -> None:
    seen = Fingerprints()
    seen.add("abcdefgh", "efghijkl", "abcdef")
    assert seen.masked("--abcdefghijkl--") == "--***--"
    assert seen.masked("--abcdefxx--") == "--***xx--"


def test_no_value_is_kept_and_the_oldest_are_forgotten() -> None:
    seen = Fingerprints(most=3)
    for number in range(3):
        seen.add(f"secret-number-{number}")
    assert "secret" not in repr(vars(seen))
    seen.add("secret-number-0")
    seen.add("secret-number-3", "short")
    assert len(seen) == 3
    text = " ".join(f"secret-number-{number}" for number in range(4))
    assert seen.masked(text) == "*** secret-number-1 *** ***"
    few = Fingerprints(most_forms=4)
    for number in range(50):
        few.add(f"secret-number-{number}")
    assert few.masked("secret-number-49") == "***"
    assert few.masked("secret-number-1.") == "secret-number-1."
    assert len(few._starts) < 20  # noqa: SLF001 - what is forgotten leaves nothing behind


LETTERS = 'ab1/+ "\né'


@given(st.lists(st.text(LETTERS, min_size=6, max_size=12), max_size=5), st.text(LETTERS))
def test_it_covers_what_the_redactor_covers(secrets: list[str], around: str) -> None:
    seen = Fingerprints()
    seen.add(*secrets)
    for secret in secrets:
        assert secret not in seen.masked(f"{around}{secret}{around}")


def test_a_line_costs_the_same_however_many_are_known() -> None:
    line = "a request was not served, and this says why at some length " * 5
    one, many = Fingerprints(), Fingerprints()
    one.add("the only secret there is")
    many.add(*(f"{number:08d}-of-very-many-secrets" for number in range(2_000)))

    def took(seen: Fingerprints) -> float:
        began = time.perf_counter()
        for _ in range(20):
            assert seen.masked(line) == line
        return time.perf_counter() - began

    assert min(took(many) for _ in range(5)) < 20 * min(took(one) for _ in range(5))


def test_no_line_of_a_log_shows_what_was_seen() -> None:
    seen, stream = Fingerprints(), io.StringIO()
    lines = Lines(stream, redactor=Redactor((), seen), is_readable=False)
    seen.add(SECRET)
    record = logging.LogRecord("x", logging.ERROR, "", 0, "it said %s", (SECRET,), None)
    record.more = {"deep": [SECRET]}
    lines.emit(record)
    assert "finger" not in stream.getvalue()
    assert stream.getvalue().count("***") == 2

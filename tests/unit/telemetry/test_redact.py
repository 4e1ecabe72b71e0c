"""Secrets never pass, whatever form a sink gives them."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest

from noetl.telemetry.redact import MOST, Redactor

SECRET = 'p@ss/w"örd\n1234'  # noqa: S105 - not one


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        json.dumps(SECRET)[1:-1],
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
        quote(SECRET, safe=""),
        base64.b64encode(SECRET.encode()).decode(),
    ],
)
def test_every_form_of_a_secret_is_replaced(form):
    assert Redactor([SECRET]).redact(f"before {form} after") == "before *** after"


def test_a_secret_inside_basic_auth_is_replaced():
    secret = "correct-horse-battery"  # noqa: S105 - not one
    for user in ("a", "ab", "abc"):
        header = base64.b64encode(f"{user}:{secret}".encode()).decode()
        left = Redactor([secret]).redact(header)
        assert "***" in left
        assert len(left) <= 12


def test_a_short_secret_is_replaced_only_as_a_whole_token():
    assert Redactor(["abc"]).redact("abc abcd x-abc") == "*** abcd x-***"


def test_values_keys_and_numbers_are_replaced():
    redactor = Redactor(["hunter22", "123456"])
    value = {"hunter22": [1, "a hunter22 b", {"pin": 123456, "ok": True, "none": None}]}
    assert redactor.redact_value(value) == {
        "***": [1, "a *** b", {"pin": "***", "ok": True, "none": None}]
    }


def test_a_clean_value_is_returned_as_it_is():
    value = {"a": [1, 2, {"b": "c"}]}
    assert Redactor(["hunter22"]).redact_value(value) is value


def test_a_value_that_is_no_json_is_still_walked():
    marker = object()
    assert Redactor(["hunter22"]).redact_value([marker, "hunter22"]) == [marker, "***"]


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("Authorization: Bearer abc123.def456", "Authorization: Bearer ***"),
        ("key sk-abcdefghijklmnop1234", "key ***"),
        ("ghp_" + "a1" * 18, "***"),
        ("t eyJhbGciOiJI.eyJzdWIiOiIx.sig-1 e", "t *** e"),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\nx", "***\nx"),
        ("the bearer of this letter", "the bearer of this letter"),
        ("a task-force, a risk-averse clerk", "a task-force, a risk-averse clerk"),
    ],
)
def test_known_shapes_of_secrets_are_replaced(text, clean):
    assert Redactor().redact(text) == clean


def test_the_lines_of_a_secret_are_replaced_one_by_one():
    assert (
        Redactor(["first-line-of-it\nsecond-line-of-it"]).redact("x second-line-of-it") == "x ***"
    )


def test_more_secrets_than_are_kept_as_texts_are_covered_all_the_same():
    secrets = [f"secret-number-{n:05}" for n in range(3 * MOST)]
    redactor = Redactor(secrets)
    assert [s for s in secrets if redactor.redact(f"so {s} it is") != "so *** it is"] == []
    assert redactor.redact("secret-number-x stays") == "secret-number-x stays"


def test_a_short_secret_covers_words_only_while_somebody_holds_it():
    redactor = Redactor()
    redactor.add("42")
    redactor.add("42")
    assert redactor.redact_value({"n": 42}) == {"n": "***"}
    redactor.release("42")
    assert redactor.redact("the 42 of it") == "the *** of it"
    redactor.release("42")
    assert redactor.redact_value({"n": 42, "t": "42"}) == {"n": 42, "t": "42"}
    redactor.release("42")
    redactor.add("a-long-secret")
    redactor.release("a-long-secret")
    assert redactor.redact("a-long-secret") == "***"


def test_an_empty_secret_hides_nothing():
    assert Redactor(["", ""]).redact("text") == "text"


def test_a_text_tells_which_secrets_it_holds():
    old = [f"secret-number-{n:05}" for n in range(MOST)]
    redactor = Redactor([*old, SECRET, "42", "another-one"])
    text = f"{json.dumps(SECRET)} 42 {old[0]} {old[-1]}"
    assert sorted(redactor.within(text)) == sorted([SECRET, "42", old[0], old[-1]])
    assert redactor.within("142 and secret-number-x") == ()

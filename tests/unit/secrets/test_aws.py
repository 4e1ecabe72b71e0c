"""Signatures are those that the vendor's own library makes."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from noetl.secrets.aws import AwsKeys, signed
from noetl.secrets.fetch import Ask
from noetl.secrets.source import SourceRefused

NOW = datetime(2026, 1, 31, 12, 0, 5, tzinfo=UTC)
KEYS = AwsKeys(access_key_id="AKIAEXAMPLE", secret_access_key="canary-aws-secret-6174")  # noqa: S106 - of a test


def reference(ask, keys, region, service, monkeypatch):
    """What botocore signs; it comes with moto."""
    from botocore import auth, awsrequest, credentials  # noqa: PLC0415 - slow to load

    monkeypatch.setattr(auth, "get_current_datetime", lambda *_: NOW.replace(tzinfo=None))
    request = awsrequest.AWSRequest(ask.method, ask.url, dict(ask.headers), ask.body)
    given = credentials.Credentials(
        keys.access_key_id, keys.secret_access_key, keys.session_token or None
    )
    auth.SigV4Auth(given, service, region).add_auth(request)
    return request.headers["Authorization"]


@pytest.mark.parametrize(
    ("ask", "token"),
    [
        (("POST", "https://sts.eu-west-1.amazonaws.com/", {}, b"Action=GetSessionToken"), ""),
        (("POST", "http://127.0.0.1:5000/", {"x-amz-target": "a.B"}, b"{}"), "canary-session"),
        (("GET", "https://s.amazonaws.com/?b=2&a=1&a=0&c=", {}, None), ""),
        (("GET", "https://s.amazonaws.com/x?q=a%20b%2Fc~", {"X-Two": "a   b "}, None), ""),
        (("GET", "https://s.amazonaws.com", {}, None), ""),
    ],
)
def test_a_signature_is_that_of_the_vendor(ask, token, monkeypatch):
    keys = replace(KEYS, session_token=token)
    method, url, headers, body = ask
    ask = Ask(method=method, url=url, headers=headers, body=body)
    made = signed(ask, keys, region="eu-west-1", service="sts", now=NOW)
    assert made.headers["authorization"] == reference(ask, keys, "eu-west-1", "sts", monkeypatch)
    assert made.headers.get("x-amz-security-token", "") == token
    assert made.headers["x-amz-date"] == "20260131T120005Z"


def test_keys_come_from_the_fields_of_a_credential():
    short = {"access_key_id": "a", "secret_access_key": "canary", "session_token": "canary-t"}
    long = {f"aws_{name}": value for name, value in short.items()}
    assert AwsKeys.of(short) == AwsKeys.of(long)
    assert "canary" not in repr(AwsKeys.of(short))
    with pytest.raises(SourceRefused, match="secret_access_key"):
        AwsKeys.of({"access_key_id": "a"})

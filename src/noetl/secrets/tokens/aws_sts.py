"""Keys of AWS that end by themselves (`aws-sts`)."""

from __future__ import annotations

import re
from datetime import datetime
from html import unescape
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from noetl.secrets.aws import AwsKeys, signed
from noetl.secrets.fetch import Ask
from noetl.secrets.source import SourceRefused, answered
from noetl.secrets.tokens.base import Token, seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.clock import Clock
    from noetl.secrets.fetch import Fetch

_WHO: Final = "AWS STS"
_REGION: Final = re.compile(r"[a-z0-9-]{1,40}\Z")
_DURATION_S: Final = 3600
_NAMES: Final = {
    "access_key_id": "AccessKeyId",
    "secret_access_key": "SecretAccessKey",
    "session_token": "SessionToken",
}


async def mint(fetch: Fetch, clock: Clock, fields: Mapping[str, Any], *, region: str = "") -> Token:
    """Keys of the role `role_arn`, or of a session without one.

    Fields: `access_key_id`, `secret_access_key`, `session_token`, `region`.
    """
    place = region or str(fields.get("region") or "us-east-1")
    if not _REGION.match(place):
        raise SourceRefused(f"{place[:40]!r} is not a region of AWS")
    wanted = {"Version": "2011-06-15", "DurationSeconds": _duration(fields)}
    if fields.get("role_arn"):
        wanted |= {
            "Action": "AssumeRole",
            "RoleArn": str(fields["role_arn"]),
            "RoleSessionName": str(fields.get("role_session_name") or "noetl"),
        }
        if fields.get("external_id"):
            wanted["ExternalId"] = str(fields["external_id"])
    else:
        wanted["Action"] = "GetSessionToken"
    ask = Ask(
        method="POST",
        url=str(fields.get("endpoint") or f"https://sts.{place}.amazonaws.com/"),
        headers={"content-type": "application/x-www-form-urlencoded"},
        body=urlencode(wanted).encode(),
    )
    keys = AwsKeys.of(fields)
    proven = signed(ask, keys, region=place, service="sts", now=clock.now())
    text = (await answered(fetch, proven, _WHO)).body.decode("utf-8", "replace")
    made = {name: _element(text, tag) for name, tag in _NAMES.items()}
    until = datetime.fromisoformat(_element(text, "Expiration"))
    left = seconds((until - clock.now()).total_seconds())
    return Token(fields={**made, "region": place}, expires_in=left)


def _duration(fields: Mapping[str, Any]) -> str:
    value = str(fields.get("duration_seconds") or _DURATION_S)
    if not value.isdecimal():
        raise SourceRefused("the field `duration_seconds` is no number of seconds")
    return value


def _element(text: str, tag: str) -> str:
    """The text of the one element of this name; what AWS answers here nests no two of them."""
    found = re.search(rf"<{tag}>([^<]+)</{tag}>", text)
    if found is None:
        raise SourceRefused(f"{_WHO} answered without {tag}")
    return unescape(found[1].strip())

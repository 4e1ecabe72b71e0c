"""Secrets of AWS Secrets Manager."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Final

import msgspec

from noetl.secrets.aws import signed
from noetl.secrets.fetch import Ask
from noetl.secrets.providers.base import as_text, field_of
from noetl.secrets.source import SourceMissing, SourceRefused, text_in, told

if TYPE_CHECKING:
    from noetl.clock import Clock
    from noetl.secrets.aws import AwsKeys
    from noetl.secrets.fetch import Fetch

_WHO: Final = "AWS Secrets Manager"
_VERSION_ID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z")
_REGION: Final = re.compile(r"[a-z0-9-]{1,40}\Z")
_MISSING: Final = "ResourceNotFoundException"


class AwsSecrets:
    """Names are those of secrets or their ARNs; `name#field` is one field of a JSON secret."""

    def __init__(
        self, fetch: Fetch, clock: Clock, *, keys: AwsKeys, region: str, endpoint: str = ""
    ) -> None:
        if not _REGION.match(region):
            raise SourceRefused(
                f"{region[:40]!r} is not a region of AWS",
                hint="put `region` into the keychain entry or into the credential",
            )
        self._fetch = fetch
        self._clock = clock
        self._keys = keys
        self._region = region
        self._url = endpoint or f"https://secretsmanager.{region}.amazonaws.com/"

    async def read(self, name: str, version: str | None = None) -> str:
        """One secret; a version is an id or a label such as AWSPREVIOUS."""
        secret, _, field = name.partition("#")
        body = {"SecretId": secret}
        if version:
            body["VersionId" if _VERSION_ID.match(version) else "VersionStage"] = version
        ask = Ask(
            method="POST",
            url=self._url,
            headers={
                "content-type": "application/x-amz-json-1.1",
                "x-amz-target": "secretsmanager.GetSecretValue",
            },
            body=msgspec.json.encode(body),
        )
        proven = signed(
            ask, self._keys, region=self._region, service="secretsmanager", now=self._clock.now()
        )
        try:
            found = await told(self._fetch, proven, _WHO)
        except SourceRefused as fault:
            if _MISSING in fault.message:
                raise SourceMissing(fault.message, answered=fault.answered) from None
            raise
        if "SecretString" in found:
            text = str(found["SecretString"])
        else:
            text = as_text(base64.b64decode(text_in(found, "SecretBinary", _WHO)), _WHO)
        return field_of(_map(text), field, _WHO) if field else text


def _map(text: str) -> dict[str, object]:
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        found = None
    if not isinstance(found, dict):
        raise SourceRefused(f"the secret in {_WHO} has no fields: it is no JSON map")
    return found

"""Secrets of Google Secret Manager."""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Final

from noetl.secrets.fetch import Ask
from noetl.secrets.providers.base import as_text
from noetl.secrets.source import SourceRefused, text_in, told

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from noetl.secrets.fetch import Fetch

BASE: Final = "https://secretmanager.googleapis.com/v1"
_WHO: Final = "Google Secret Manager"
_PART: Final = r"[A-Za-z0-9_:-][A-Za-z0-9_.:-]{0,254}"
_FULL: Final = re.compile(
    rf"(projects/{_PART}(?:/locations/{_PART})?/secrets/{_PART})(?:/versions/({_PART}))?\Z"
)


class GcpSecrets:
    """Names are `projects/<p>/secrets/<s>[/versions/<v>]`, or `<s>` of the credential's project."""

    def __init__(
        self,
        fetch: Fetch,
        *,
        bearer: Callable[[], Awaitable[str]],
        project: str = "",
        base: str = BASE,
    ) -> None:
        self._fetch = fetch
        self._bearer = bearer
        self._project = project
        self._base = base.rstrip("/")

    async def read(self, name: str, version: str | None = None) -> str:
        """One secret; a version in the name wins over `latest`."""
        full = name if "/" in name else f"projects/{self._project}/secrets/{name}"
        found = _FULL.match(full)
        if found is None:
            raise SourceRefused(
                f"{name[:200]!r} is not the name of a secret in {_WHO}",
                hint="use projects/<project>/secrets/<name>, or put `project_id` into the "
                "credential",
            )
        which = version or found[2] or "latest"
        if not re.fullmatch(_PART, which):
            raise SourceRefused(f"{which[:80]!r} is not a version of a secret in {_WHO}")
        ask = Ask(
            method="GET",
            url=f"{self._base}/{found[1]}/versions/{which}:access",
            headers={"authorization": f"Bearer {await self._bearer()}"},
        )
        payload = (await told(self._fetch, ask, _WHO)).get("payload")
        if not isinstance(payload, dict):
            raise SourceRefused(f"{_WHO} answered without a payload")
        try:
            data = base64.b64decode(text_in(payload, "data", _WHO), validate=True)
        except (binascii.Error, ValueError):
            raise SourceRefused(f"{_WHO} answered no base64") from None
        return as_text(data, _WHO)

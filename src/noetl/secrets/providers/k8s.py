"""Secrets of a Kubernetes cluster."""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Final

from noetl.secrets.fetch import Ask
from noetl.secrets.providers.base import as_text, field_of, split_field
from noetl.secrets.source import SourceMissing, SourceRefused, told

if TYPE_CHECKING:
    from noetl.secrets.fetch import Fetch

_WHO: Final = "Kubernetes"
_LABEL: Final = r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?"
_NAME: Final = re.compile(rf"(?:({_LABEL})/)?({_LABEL})\Z")


class K8sSecrets:
    """Names are `secret#key` of the credential's namespace, or `namespace/secret#key`."""

    def __init__(
        self,
        fetch: Fetch,
        *,
        server: str,
        token: str,
        namespace: str = "default",
        authority: str = "",
    ) -> None:
        self._fetch = fetch
        self._base = f"{server.rstrip('/')}/api/v1/namespaces"
        self._token = token
        self._namespace = namespace
        self._authority = authority

    async def read(self, name: str, version: str | None = None) -> str:
        """One key of a secret, or all of them as JSON; there are no versions."""
        path, key = split_field(name)
        found = _NAME.match(path)
        if found is None or not re.fullmatch(_LABEL, found[1] or self._namespace):
            raise SourceRefused(
                f"{name[:200]!r} is not the name of a secret in {_WHO}",
                hint="use secret#key or namespace/secret#key",
            )
        if version:
            raise SourceMissing(f"a secret in {_WHO} has no versions", hint="leave the version out")
        ask = Ask(
            method="GET",
            url=f"{self._base}/{found[1] or self._namespace}/secrets/{found[2]}",
            headers={"authorization": f"Bearer {self._token}", "accept": "application/json"},
            authority=self._authority,
        )
        data = (await told(self._fetch, ask, _WHO)).get("data") or {}
        if not isinstance(data, dict):
            raise SourceRefused(f"{_WHO} answered no map of data")
        wanted = {name: value for name, value in data.items() if key in {"", name}}
        return field_of({name: _decoded(value) for name, value in wanted.items()}, key, _WHO)


def _decoded(value: object) -> str:
    try:
        return as_text(base64.b64decode(str(value), validate=True), _WHO)
    except (binascii.Error, ValueError):
        raise SourceRefused(f"{_WHO} answered no base64") from None

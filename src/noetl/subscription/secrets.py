"""Credentials of a subscription: sealed by the server to this process, and opened here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar, Final

from noetl.api.problems import Refused
from noetl.dsl.documents.credential_types import secrets_in
from noetl.errors import NoetlError
from noetl.secrets.sealed import Sealed, about_delivery

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from noetl.api.client import Client
    from noetl.api.credentials import SealedAnswer
    from noetl.secrets.sealed import KeyPair
    from noetl.telemetry.redact import Redactor

_NOT_FOUND: Final = 404
_FORGOTTEN: Final = "worker_key_missing"


class MissingAlias(NoetlError):
    """A subscription names a credential that there is not."""

    code = "subscription.missing_alias"
    status: ClassVar[int] = 404


class Credentials:
    """What the server seals to this process."""

    def __init__(
        self,
        client: Client,
        name: str,
        keys: KeyPair,
        redactor: Redactor,
        join: Callable[[], Awaitable[None]],
    ) -> None:
        """`join` makes this process known, with the key that others seal to."""
        self._client = client
        self._name = name
        self._keys = keys
        self._redactor = redactor
        self._join = join

    async def fields(self, alias: str | None, subscription_id: str) -> Mapping[str, Any]:
        """The fields of a credential, none without an alias; `MissingAlias` when there is none."""
        if alias is None:
            return {}
        try:
            answer = await self._sealed(alias, subscription_id)
        except Refused as fault:
            if fault.problem.status == _NOT_FOUND:
                raise MissingAlias(
                    f"there is no credential `{alias}`",
                    hint=f"make it with `noetl credentials put {alias} --type ...`",
                ) from fault
            raise
        sealed = Sealed(
            alg=answer.alg, v=answer.v, eph_pub=answer.eph_pub, ciphertext=answer.ciphertext
        )
        about = about_delivery(self._name, subscription_id, alias)
        found: dict[str, Any] = json.loads(self._keys.open(sealed, about))
        self._redactor.add(*secrets_in(found))
        data = found.get("data")
        return data if isinstance(data, dict) else found

    async def _sealed(self, alias: str, subscription_id: str) -> SealedAnswer:
        try:
            return await self._ask(alias, subscription_id)
        except Refused as fault:
            if fault.code != _FORGOTTEN:
                raise
        await self._join()
        return await self._ask(alias, subscription_id)

    async def _ask(self, alias: str, subscription_id: str) -> SealedAnswer:
        return await self._client.sealed_for_listener(
            alias, process=self._name, subscription_id=subscription_id
        )

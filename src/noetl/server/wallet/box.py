"""Values to sealed records and back: each opens in its own row alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.dsl.documents.credential_types import secrets_in, texts_in
from noetl.secrets.kek.base import KekUnavailable
from noetl.secrets.wallet import about
from noetl.telemetry.fingerprints import Fingerprints

if TYPE_CHECKING:
    from noetl.secrets.wallet import Wallet
    from noetl.store.secrets import SecretTable

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode
_INPUTS: Final = "execution_secret"


class Box:
    """Seals any JSON for one row of one table; what passes is covered in logs and refusals."""

    def __init__(self, wallet: Wallet | None, seen: Fingerprints | None = None) -> None:
        self._wallet = wallet
        self._seen = Fingerprints() if seen is None else seen

    @property
    def wallet(self) -> Wallet:
        """The wallet; refused while the server has no key."""
        if self._wallet is None:
            raise KekUnavailable(
                "the server has no key that seals secrets", hint="set NOETL_ENCRYPTION_KEY"
            )
        return self._wallet

    async def seal(self, value: object, table: SecretTable, tenant_id: str, key: str) -> str:
        """The record of a value."""
        text = _encode(value)
        self._cover(_decode(text), table)
        return await self.wallet.seal(text, about(table, tenant_id, key))

    async def open(self, record: str, table: SecretTable, tenant_id: str, key: str) -> Any:  # noqa: ANN401 - JSON
        """The value of a record of this row."""
        found = _decode(await self.wallet.open(record, about(table, tenant_id, key)))
        self._cover(found, table)
        return found

    def _cover(self, value: object, table: SecretTable) -> None:
        # A secret input is one whatever its name; a credential says where and as whom, too.
        self._seen.add(*(texts_in if table == _INPUTS else secrets_in)(value))

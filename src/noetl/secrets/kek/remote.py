"""What every key service over HTTP has in common: what its answers mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from noetl.secrets.cipher import KEY_BYTES
from noetl.secrets.kek.base import CannotUnwrap, KekUnavailable
from noetl.secrets.source import SourceError, told
from noetl.secrets.text import from_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.secrets.fetch import Ask, Fetch
    from noetl.secrets.kek.base import WalletError

SETTING: Final = "NOETL_KMS_KEY"
_FINAL: Final = frozenset({400, 404, 410})


async def kms_told(fetch: Fetch, ask: Ask, who: str, refusal: type[WalletError]) -> dict[str, Any]:
    """The answer of a key service.

    A key or a ciphertext that it does not know is the given refusal: asking again changes
    nothing. A service that is silent or busy, or refuses our identity, may answer later.
    """
    try:
        return await told(fetch, ask, who)
    except SourceError as fault:
        if fault.answered in _FINAL:
            hint = f"check {SETTING}, and which versions of the key may be used"
            raise refusal(fault.message, hint=hint) from None
        raise KekUnavailable(fault.message, hint=fault.hint) from None


def key_in(found: Mapping[str, Any], who: str) -> bytes:
    """The key of a record that a key service has unwrapped."""
    try:
        key = from_text(str(found.get("plaintext", "")))
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise CannotUnwrap(f"{who} answered no key")
    return key

"""What a key of keys does: it wraps the key of a record, and unwraps what it wrapped once.

WalletError
├── RecordDamaged        a record that cannot be opened, now or later
│   ├── NotARecord       the text is no record at all
│   └── CannotUnwrap     no key that is known here unwraps its key
├── CannotWrap           the current key refuses to wrap
└── KekUnavailable       the service that holds the key does not answer
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from noetl.errors import NoetlError


class WalletError(NoetlError):
    """A record was not sealed or not opened; its content is in no message."""

    failure: ClassVar[str] = ""
    """The class under which a rotation counts it; empty when a rotation never meets it."""


class RecordDamaged(WalletError):
    """What is stored is not what was sealed for this place."""

    code = "record_damaged"


class NotARecord(RecordDamaged):
    """The stored text is no record of the wallet: it is never taken for plain text."""

    failure = "parse_error"


class CannotUnwrap(RecordDamaged):
    """The key of the record cannot be unwrapped with any key that is known here."""

    failure = "failed_unwrap"


class CannotWrap(WalletError):
    """The current key refuses to wrap: nothing can be sealed before it is mended."""

    code = "kek_unavailable"
    status: ClassVar[int] = 503
    failure = "failed_wrap"


class KekUnavailable(WalletError):
    """The service that holds the key does not answer; the record itself may be well."""

    code = "kek_unavailable"
    status: ClassVar[int] = 503
    retryable: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Wrapped:
    """The key of a record under a key of keys: whose, which, which version, the bytes."""

    p: str
    kid: str
    kv: str
    ct: bytes = field(repr=False)

    @property
    def version(self) -> tuple[str, str, str]:
        """Provider, key and version."""
        return self.p, self.kid, self.kv


def not_set_up(wrapped: Wrapped) -> CannotUnwrap:
    """The error for a key that a provider wrapped which nobody named here."""
    return CannotUnwrap(
        f"the record's key is wrapped by {wrapped.p[:40]!r}, which is not set up here",
        hint="name it in NOETL_KMS_PROVIDER_PREVIOUS until `noetl wallet rotate-kek` has moved all",
    )


class Kek(Protocol):
    """One key of keys with its versions."""

    @property
    def provider(self) -> str:
        """The word for it in records: `local`, `vault`, `gcp-kms`."""

    async def current(self) -> tuple[str, str]:
        """Id and version of the key that wraps now; `KekUnavailable` when nobody can say."""

    async def wrap(self, dek: bytes) -> Wrapped:
        """Wrap with the current version; `CannotWrap`, `KekUnavailable`."""

    async def unwrap(self, wrapped: Wrapped) -> bytes:
        """Unwrap with the version that wrapped; `CannotUnwrap`, `KekUnavailable`."""

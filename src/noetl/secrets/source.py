"""Asking another system for a secret: what it answered, or why there is none.

SourceError
├── SourceMissing        the system has no such secret
├── SourceRefused        the system refuses us, or cannot be understood
└── SourceUnavailable    the system does not answer now; later it may

The words of an answer are in no message: they may be the secret, or the request come back.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from noetl.errors import NoetlError
from noetl.secrets.fetch import Unreached

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.secrets.fetch import Answer, Ask, Fetch

_MISSING: Final = frozenset({404, 410})
_LATER: Final = frozenset({408, 425, 429})
_SERVER: Final = 500
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.]{0,59}\Z")


class SourceError(NoetlError):
    """A secret was not given."""

    code = "secret_refused"
    status: ClassVar[int] = 422

    def __init__(self, message: str, *, hint: str = "", answered: int = 0) -> None:
        """Keep what happened, what to do about it, and the status that was answered, if any."""
        super().__init__(message, hint=hint)
        self.answered = answered


class SourceMissing(SourceError):
    """The system has no such secret."""

    code = "secret_missing"


class SourceRefused(SourceError):
    """The system refuses us, was told too little, or answers what cannot be understood."""


class SourceUnavailable(SourceError):
    """The system does not answer now."""

    code = "secret_unavailable"
    status: ClassVar[int] = 503
    retryable: ClassVar[bool] = True


async def answered(fetch: Fetch, ask: Ask, who: str) -> Answer:
    """A good answer of a system, or the error that says what is wrong."""
    try:
        answer = await fetch(ask)
    except Unreached as fault:
        if fault.is_refused:
            raise SourceRefused(f"{who}: {fault.message}", hint=fault.hint) from None
        raise SourceUnavailable(f"{who} does not answer: {fault.message}") from None
    if answer.is_ok:
        return answer
    said = f"{who} answered {answer.status}{_reason(answer)}"
    if answer.status in _MISSING:
        hint = "check the name, and the version if you gave one"
        raise SourceMissing(said, hint=hint, answered=answer.status)
    if answer.status in _LATER or answer.status >= _SERVER:
        raise SourceUnavailable(said, answered=answer.status)
    hint = "check the credential and its rights there"
    raise SourceRefused(said, hint=hint, answered=answer.status)


async def told(fetch: Fetch, ask: Ask, who: str) -> dict[str, Any]:
    """The JSON map that a system answers with."""
    return map_of(await answered(fetch, ask, who), who)


def map_of(answer: Answer, who: str) -> dict[str, Any]:
    """The body of an answer as a JSON map."""
    found = _json(answer.body)
    if not isinstance(found, dict):
        raise SourceRefused(f"{who} answered no JSON map")
    return found


def text_in(found: Mapping[str, Any], name: str, who: str) -> str:
    """A text that an answer must have."""
    value = found.get(name)
    if not isinstance(value, str) or not value:
        raise SourceRefused(f"{who} answered without `{name}`")
    return value


def needed(fields: Mapping[str, Any], names: tuple[str, ...], what: str) -> str:
    """The first of these fields that has a value; without one the error names them."""
    for name in names:
        value = fields.get(name)
        if value not in (None, ""):
            return str(value)
    more = f" (or `{'`, `'.join(names[1:])}`)" if names[1:] else ""
    raise SourceRefused(
        f"{what} needs the field `{names[0]}`{more}", hint="put the field into its credential"
    )


def _reason(answer: Answer) -> str:
    """The word for the error in the forms that systems use, when it is one word."""
    found = _json(answer.body)
    if not isinstance(found, dict):
        return ""
    error = found.get("error", found.get("__type", found.get("reason", "")))
    if isinstance(error, dict):
        error = error.get("status", error.get("code", ""))
    word = str(error).rpartition("#")[2]
    return f" {word}" if _WORD.match(word) else ""


def _json(body: bytes) -> object:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None

"""What names, addresses and numbers of accounts, roles, tokens and tenants look like."""

from __future__ import annotations

import re
from typing import Final

from noetl.edge.errors import Unacceptable

MOST_EMAIL: Final = 254
MOST_NAME: Final = 200
_SUBJECT: Final = re.compile(r"[^\s\x00-\x1f\x7f]{1,200}\Z")
_EMAIL: Final = re.compile(r"[^@\s\x00-\x1f\x7f]+@[^@\s\x00-\x1f\x7f]+\Z")
_ROLE: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}\Z")
_TENANT: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\Z")
_POOL: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\Z")
_RESERVED: Final = "system"


def wrong(
    pointer: str, what: str, *, hint: str = "", code: str = "validation_failed"
) -> Unacceptable:
    """A refusal that points to the place."""
    return Unacceptable(what, code=code, hint=hint, errors=({"pointer": pointer, "code": code},))


def is_subject(text: str) -> bool:
    """Whether a text can be the name of an account."""
    return bool(_SUBJECT.match(text))


def must_be_subject(text: str) -> None:
    """Refuse what is no name of an account."""
    if not is_subject(text):
        raise wrong("/subject", "`subject` is not a name", hint="1..200 characters, no spaces")


def must_be_email(text: str | None) -> None:
    """Refuse what is no e-mail address."""
    if text is not None and not (_EMAIL.match(text) and len(text) <= MOST_EMAIL):
        raise wrong("/email", "`email` is not an address")


def must_be_name(pointer: str, text: str | None, *, least: int = 0) -> None:
    """Refuse a text that is too long to be shown as a name, or too short."""
    if text is not None and not least <= len(text) <= MOST_NAME:
        raise wrong(pointer, f"`{pointer[1:]}` does not have {least}..{MOST_NAME} characters")


def must_be_role_name(text: str) -> None:
    """Refuse what is no name of a role."""
    if not _ROLE.match(text):
        hint = "1..63 of a-z, 0-9, `_` and `-`, a letter first"
        raise wrong("/name", f"{text[:80]!r} is not the name of a role", hint=hint)


def must_be_tenant(text: str) -> None:
    """Refuse what is no id of a tenant."""
    if not _TENANT.match(text) or text == _RESERVED:
        hint = "1..63 of a-z, 0-9, `_` and `-`; not `system`"
        raise wrong("/tenant_id", f"{text[:80]!r} is not the id of a tenant", hint=hint)


def must_be_pool(text: str) -> None:
    """Refuse what is no name of a pool."""
    if not _POOL.match(text):
        raise wrong("/pool", f"{text[:80]!r} is not a pool", code="pool_invalid")


def must_be_in(pointer: str, number: int, least: int, most: int) -> None:
    """Refuse a number outside of its bounds."""
    if not least <= number <= most:
        raise wrong(pointer, f"`{pointer[1:]}` is not in {least}..{most}")

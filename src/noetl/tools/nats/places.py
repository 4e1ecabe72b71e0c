"""Where a task's broker is, and which of its names are the platform's own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from noetl.bus import subjects
from noetl.bus.address import Address, BadAddress
from noetl.tools.auth import fields_of
from noetl.tools.base import ToolError, remedied

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.tools.base import ToolContext

SYSTEM: Final = "system"
"""The pool whose tasks may touch what is the platform's."""
WHO_AM_I: Final = "$SYS.REQ.USER.INFO"
"""Tells a user about itself and nothing else: so credentials are tried."""
_OWN: Final = ("url", "user", "password", "token")
_BUCKETS: Final = frozenset(
    {
        subjects.SESSIONS_BUCKET,
        subjects.REQUESTS_BUCKET,
        subjects.CIRCUITS_BUCKET,
        subjects.SPOOL_STORE,
    }
)
_NAME: Final = re.compile(r"[^\s.*>/\\\x00-\x1f\x7f]{1,255}")
_BUCKET: Final = re.compile(r"[A-Za-z0-9_-]{1,255}")
_SUBJECT: Final = re.compile(r"[^\s.*>\x00-\x1f\x7f]+(?:\.[^\s.*>\x00-\x1f\x7f]+)*")
_KEY: Final = re.compile(r"(?!\.)[-/_=.a-zA-Z0-9]{1,512}(?<!\.)")
_PATTERN: Final = re.compile(r"[-/_=.a-zA-Z0-9*>]{1,512}")
_OF_BUCKETS: Final = frozenset({"$KV", "$O"})


async def place_of(auth: Any, given: Mapping[str, Any], ctx: ToolContext) -> Address:  # noqa: ANN401 - an alias or a map
    """The address of a task: what it says itself comes before what its credential says."""
    own = {name: given[name] for name in _OWN if given.get(name)}
    fields: dict[str, Any] = {}
    if auth is not None or "url" not in own:
        fields = await fields_of(auth, ctx, types=("nats",))
    fields |= own
    url = fields.get("url")
    if not url:
        message = "/url: neither the task nor its credential names the address of the broker; "
        message += "write `url` into the credential or the task"
        raise ToolError("auth", "auth_required", message)
    named = {name: str(fields[name]) for name in ("user", "password", "token") if name in fields}
    try:
        place = Address.of(str(url), **named)
    except BadAddress as fault:
        message = f"/url: {fault.message}. {fault.hint}"
        raise ToolError("config", "invalid_config", message) from None
    secrets = [text for text in (place.password, place.token) if text]
    if "@" in str(url):
        secrets.append(str(url))
    ctx.redactor.add(*secrets)
    return place


def bucket_of(name: str | None, ctx: ToolContext) -> str:
    """The name of a bucket that this task may touch."""
    bucket = named(name, "bucket")
    if not _BUCKET.fullmatch(bucket):
        raise invalid("bucket", "has letters, digits, `_` and `-`")
    if bucket in _BUCKETS or bucket.upper().startswith("NOETL_"):
        _refuse(f"the bucket {bucket}", ctx)
    return bucket


def stream_of(name: str | None, ctx: ToolContext) -> str:
    """The name of a stream that this task may touch."""
    stream = token_of(name, "stream")
    prefix, _, bucket = stream.partition("_")
    is_ours = prefix in {"KV", "OBJ"} and (bucket in _BUCKETS or bucket.startswith("NOETL_"))
    if stream.startswith("NOETL_") or is_ours:
        _refuse(f"the stream {stream}", ctx)
    return stream


def subject_of(name: str | None, ctx: ToolContext) -> str:
    """A subject that this task may publish to or ask."""
    subject = named(name, "subject")
    if not _SUBJECT.fullmatch(subject):
        raise invalid("subject", "is words with dots between, without `*`, `>` and spaces")
    first, *rest = subject.split(".")
    is_ours = first == "noetl" or (
        first.startswith("$") and (first not in _OF_BUCKETS or not rest or rest[0] in _BUCKETS)
    )
    if is_ours and subject != WHO_AM_I:
        _refuse(f"the subject {subject}", ctx)
    return subject


def key_of(name: str | None) -> str:
    """A key of a bucket."""
    key = named(name, "key")
    if not _KEY.fullmatch(key):
        raise invalid("key", "has letters, digits and `-/_=.`, no dot at its ends")
    return key


def pattern_of(name: str | None) -> tuple[str, re.Pattern[str]]:
    """Which keys are listed: as the broker is asked, and as its answer is sifted.

    The broker knows whole words only: for `d-*` it is asked for all words of that place.
    """
    pattern = name or ">"
    if not _PATTERN.fullmatch(pattern):
        raise invalid("pattern", "has the letters of keys, `*` and `>`")
    words = pattern.split(".")
    asked = ".".join(word if word == ">" else "*" if "*" in word else word for word in words)
    sifted = re.escape(pattern).replace(r"\*", "[^.]*").replace(">", ".+")
    return asked, re.compile(sifted)


def token_of(name: str | None, field: str) -> str:
    """The name of a stream or a consumer."""
    text = named(name, field)
    if not _NAME.fullmatch(text):
        raise invalid(field, "is one word, without dots, `*`, `>` and slashes")
    return text


def named(name: str | None, field: str) -> str:
    """A field that an operation cannot do without."""
    if not name:
        raise invalid(field, "is needed by this operation")
    return name


def invalid(field: str, said: str) -> ToolError:
    """The error of a field."""
    return ToolError("config", "invalid_config", f"/{field}: {said}")


def _refuse(what: str, ctx: ToolContext) -> None:
    if getattr(ctx, "pool", "") != SYSTEM:
        message = f"{what} is the platform's own: tasks of user pools may not touch it"
        raise remedied(ToolError("auth", "platform_resource", message))

"""The grammar of references: every form that a name of stored bytes may have, read strictly.

A reference is a name and not a right: whoever resolves one asks whose it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Final, Literal
from urllib.parse import quote, unquote_to_bytes

from noetl.errors import NoetlError

LONGEST_REF: Final = 2048
SCHEME: Final = "noetl://"
KINDS: Final = ("results", "datasets", "models", "state")
_SHORTEST: Final = 5
_OF_TENANT: Final = 8
_SPOOL: Final = 4
_LARGEST_ID: Final = (1 << 63) - 1
_ESCAPES: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_VERSIONED: Final = re.compile(r"(?P<path>[^@]+)@(?P<version>[1-9][0-9]{0,9})\Z")

Form = Literal["result", "manifest", "row", "spool", "plugin"]


class InvalidRef(NoetlError):
    """A text that names no stored value."""

    code = "bad_ref"
    status: ClassVar[int] = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """What a reference says."""

    form: Form
    key: str
    """The path, each segment in its one encoded form: where the bytes lie."""
    execution_id: str = ""
    """The run that it belongs to; none for what belongs to no run."""
    tenant_id: str = ""
    """The tenant, when the name tells it."""
    name: str = ""
    """The result or step, the path of the subscription or of the plug-in."""


def parsed(ref: str) -> Name:
    """What a reference says; anything that is no reference is refused."""
    if not ref.startswith(SCHEME) or len(ref) > LONGEST_REF or not ref.isascii():
        raise InvalidRef(f"{ref[:80]!r} is not a reference", hint="noetl://execution/<id>/result/…")
    parts = [_decoded(ref, part) for part in ref[len(SCHEME) :].split("/")]
    if not all(parts):
        raise InvalidRef(f"{ref[:80]!r} has an empty segment")
    reader = {"execution": _of_run, "spool": _of_spool, "plugin": _of_plugin}.get(
        parts[0], _of_tenant
    )
    return reader(ref, parts)


def segment(text: str) -> str:
    """One segment, percent-encoded; a leading dot too, so that no segment is hidden or a parent."""
    encoded = quote(text, safe="")
    if not encoded:
        raise InvalidRef("a segment of a reference is empty")
    return "%2E" + encoded[1:] if encoded.startswith(".") else encoded


def _of_run(ref: str, parts: list[str]) -> Name:
    is_known = len(parts) >= _SHORTEST and parts[2] in {"result", "manifest"}
    if not is_known or not _is_id(parts[1]):
        raise InvalidRef(f"{ref[:80]!r} is not a reference of a run's value")
    form: Form = "result" if parts[2] == "result" else "manifest"
    return Name(form=form, key=_key(parts), execution_id=parts[1], name="/".join(parts[3:-1]))


def _of_tenant(ref: str, parts: list[str]) -> Name:
    is_known = len(parts) == _OF_TENANT and parts[2] in KINDS
    if not is_known or not _is_id(parts[3]) or not all(map(_is_count, parts[5:])):
        raise InvalidRef(
            f"{ref[:80]!r} is not a reference",
            hint="noetl://<tenant>/<project>/results/<execution>/<step>/<frame>/<row>/<attempt>",
        )
    return Name(
        form="row", key=_key(parts), execution_id=parts[3], tenant_id=parts[0], name=parts[4]
    )


def _of_spool(ref: str, parts: list[str]) -> Name:
    if len(parts) < _SPOOL or not _is_count(parts[-2]):
        raise InvalidRef(
            f"{ref[:80]!r} is not a reference of a kept message",
            hint="noetl://spool/<subscription path>/<recv_seq>/<message_id>",
        )
    return Name(form="spool", key=_key(parts), name="/".join(parts[1:-2]))


def _of_plugin(ref: str, parts: list[str]) -> Name:
    found = _VERSIONED.fullmatch("/".join(parts[1:]))
    if found is None:
        raise InvalidRef(
            f"{ref[:80]!r} is not a reference of a plug-in", hint="noetl://plugin/<path>@<version>"
        )
    return Name(form="plugin", key=_key(parts), name=found["path"])


def _key(parts: list[str]) -> str:
    return "/".join(map(segment, parts))


def _decoded(ref: str, part: str) -> str:
    if _ESCAPES.search(part):
        raise InvalidRef(f"{ref[:80]!r} has a `%` that begins no escape")
    try:
        return unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        raise InvalidRef(f"{ref[:80]!r} is not percent-encoded UTF-8") from None


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _is_id(text: str) -> bool:
    return _is_count(text) and 1 <= int(text) <= _LARGEST_ID

"""One waiting message as it is stored: what it says, what was decided for it, and its name.

Pure. The digest covers the message and its plan and nothing else, so that attempts may be counted
without it changing.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from noetl.blobs.naming import SCHEME, segment
from noetl.clock import rfc3339
from noetl.errors import NoetlError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

VERSION: Final = 1
WAITING: Final = "spool"
DEAD: Final = "dlq"
EVENTS: Final = "events"
CONTROL: Final = "control"
LONGEST_ID: Final = 128
LARGEST_SEQ: Final = (1 << 63) - 1
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9._-]")
_NAME: Final = re.compile(r"([0-9]{20})-([A-Za-z0-9._-]{0,128})\.json\Z")
_AGAIN: Final = re.compile(r"#r([0-9]{1,9})\Z")
_canonical: Final = msgspec.json.Encoder(order="sorted").encode


class Corrupt(NoetlError):
    """What is stored is not what was put there, or is no item at all."""

    code = "spool_corrupt"
    status: ClassVar[int] = 500


class Keys(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What made the first start of a message one of its kind, where its dispatch key is not all."""

    key: str
    window_secs: int
    replay_key: str | None = None
    """Of what its sender has signed."""
    replay_window_secs: int | None = None
    execution_id: str | None = None
    """The run that may have begun, although nobody said so."""


class Item(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message that waits, with the plan that its run will follow."""

    v: int = VERSION
    subscription: str
    source: str
    message_id: str
    idempotency_key: str | None = None
    dedup_key: str | None = None
    recv_seq: str
    """A snowflake of its receipt: its place in the order, and its age."""
    ordering_key: str | None = None
    """Its lane."""
    downstream: str
    dispatch_key: str
    """What makes a second dispatch a duplicate."""
    dedup: Keys | msgspec.UnsetType = msgspec.UNSET
    """The keys of its first start; they hold for as long as its dispatch key is one of them."""
    sha256: str
    attempts: int = 0
    spooled_at: str
    reason: str
    spec_version: int = 0
    plan: dict[str, Any]
    message: dict[str, Any]

    def encode(self) -> bytes:
        """As it is stored: one JSON object in UTF-8."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Item:
        """What is stored; `Corrupt` unless every byte of message and plan is as it was."""
        try:
            item = msgspec.json.decode(data, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise Corrupt("an item of the spool cannot be read") from None
        if item.v != VERSION:
            raise Corrupt(f"an item of the spool has the version {item.v}")
        if item.sha256 != sha256_of(item.message, item.plan):
            raise Corrupt("an item of the spool is not what was stored")
        if seq_of(item.recv_seq) is None:
            raise Corrupt("an item of the spool has no place in the order")
        return item

    @property
    def name(self) -> str:
        """Its file name."""
        return name_of(self.recv_seq, self.message_id)

    @property
    def ref(self) -> str:
        """Its reference."""
        return ref_of(self.subscription, self.recv_seq, self.message_id)

    def attempted(self, *, is_new_run: bool = False, is_counted: bool = True) -> Item:
        """After one more attempt that failed; its next run may need a key of its own.

        An attempt that only told that something is away is not counted.
        """
        key = again(self.dispatch_key) if is_new_run else self.dispatch_key
        attempts = self.attempts + is_counted
        return msgspec.structs.replace(self, attempts=attempts, dispatch_key=key)

    def redriven(self) -> Item:
        """As if it had never been attempted, under a key that no run had before."""
        return msgspec.structs.replace(self, attempts=0, dispatch_key=again(self.dispatch_key))


def spooled_at(moment: datetime) -> str:
    """A time as items have it: UTC, milliseconds."""
    return rfc3339(moment)[:-4] + "Z"


def sha256_of(message: Mapping[str, Any], plan: Mapping[str, Any]) -> str:
    """The digest of a message and its plan: canonical JSON, sorted and compact."""
    return sha256(_canonical({"message": message, "plan": plan})).hexdigest()


def name_of(recv_seq: str, message_id: str) -> str:
    """The file name of an item; names in lexical order are items in receive order."""
    return f"{int(recv_seq):020d}-{_FOREIGN.sub('_', message_id)[:LONGEST_ID]}.json"


def key_of(tenant: str, path: str, recv_seq: str, message_id: str, part: str = WAITING) -> str:
    """Where an item lies: below its tenant and subscription, in `spool` or `dlq`."""
    return folder_of(tenant, path, part) + name_of(recv_seq, message_id)


def folder_of(tenant: str, path: str, part: str) -> str:
    """Where a part of a subscription's spool lies; ends with a slash."""
    return "/".join((segment(tenant), *map(segment, path.split("/")), part, ""))


def ref_of(path: str, recv_seq: str, message_id: str) -> str:
    """The reference of an item."""
    parts = map(segment, path.split("/"))
    return f"{SCHEME}spool/{'/'.join(parts)}/{int(recv_seq)}/{segment(message_id or '-')}"


def parts_of_name(name: str) -> tuple[int, str] | None:
    """The place and the id in a file name; none when the file is not one of ours."""
    found = _NAME.match(name)
    if found is None or not 0 < int(found[1]) <= LARGEST_SEQ:
        return None
    return int(found[1]), found[2]


def seq_of(recv_seq: str) -> int | None:
    """A place in the order as a number; none when it is no place."""
    if not (recv_seq.isascii() and recv_seq.isdigit()) or len(recv_seq) > len(str(LARGEST_SEQ)):
        return None
    number = int(recv_seq)
    return number if 0 < number <= LARGEST_SEQ else None


def again(dispatch_key: str) -> str:
    """The key of a further run of the same item: `#r1`, then `#r2`."""
    found = _AGAIN.search(dispatch_key)
    if found is None:
        return f"{dispatch_key}#r1"
    return f"{dispatch_key[: found.start()]}#r{int(found[1]) + 1}"

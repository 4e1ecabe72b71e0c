"""Frames between the worker and a child: length-prefixed JSON, checked when it arrives."""

from __future__ import annotations

import struct
from typing import Any, Final

import msgspec

_HEAD: Final = struct.Struct(">I")
_SLACK: Final = 1 << 20  # what a frame holds besides the value


class Fault(msgspec.Struct, frozen=True):
    """Why a command failed in the child."""

    kind: str
    code: str
    message: str
    details: dict[str, Any] | None = None


class Hello(msgspec.Struct, frozen=True, tag_field="op", tag="hello"):
    """The child is ready."""

    pid: int


class Get(msgspec.Struct, frozen=True, tag_field="op", tag="get"):
    """The code reads a name of the context that was not sent along."""

    name: str


class Progress(msgspec.Struct, frozen=True, tag_field="op", tag="progress"):
    """How far the code is, from 0 to 1."""

    fraction: float
    message: str


class Log(msgspec.Struct, frozen=True, tag_field="op", tag="log"):
    """A line that the code logged."""

    level: str
    text: str


class Done(msgspec.Struct, frozen=True, tag_field="op", tag="done"):
    """The command ended."""

    id: int
    rss: int
    """What the child had in memory after the command before; 0 when there was none."""
    value: Any = None
    error: Fault | None = None


class Left(msgspec.Struct, frozen=True, tag_field="op", tag="left"):
    """What the last command has left running or open: the child is not to be used again."""

    left: list[str]


class Refuse(msgspec.Struct, frozen=True, tag_field="op", tag="refuse"):
    """The command was not run, for what the one before has left."""

    id: int


class Part(msgspec.Struct, frozen=True, tag_field="op", tag="part"):
    """A piece of a blob that the code stores."""

    data: bytes


class Stored(msgspec.Struct, frozen=True, tag_field="op", tag="stored"):
    """All pieces of it have come."""

    content_type: str


class Open(msgspec.Struct, frozen=True, tag_field="op", tag="open"):
    """The code reads a blob."""

    ref: str


class Next(msgspec.Struct, frozen=True, tag_field="op", tag="next"):
    """The code wants the next piece of it."""


Exchanged = Part | Stored | Open | Next
Frame = Hello | Get | Progress | Log | Done | Left | Refuse | Exchanged
_DECODER: Final = msgspec.json.Decoder(Frame)


class BrokenFrame(Exception):
    """The child sent what is no frame."""


def pack(frame: dict[str, Any]) -> bytes:
    """One frame for the child."""
    body = msgspec.json.encode(frame)
    return _HEAD.pack(len(body)) + body


class Unpacker:
    """Turns chunks of bytes into frames; refuses one that is over the limit."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes + _SLACK
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> list[Frame]:
        """The frames that this chunk completes."""
        buffer = self._buffer
        buffer += chunk
        made: list[Frame] = []
        while len(buffer) >= _HEAD.size:
            size = _HEAD.unpack_from(buffer)[0]
            if size > self._most:
                raise BrokenFrame(f"a frame of {size} bytes is over the limit")
            end = _HEAD.size + size
            if len(buffer) < end:
                break
            try:
                made.append(_DECODER.decode(buffer[_HEAD.size : end]))
            except (msgspec.DecodeError, UnicodeDecodeError) as fault:
                raise BrokenFrame(str(fault)) from None
            del buffer[:end]
        return made

"""Which shard a run belongs to: XXH64 with seed 0 over its id as eight bytes, little-endian."""

from __future__ import annotations

from typing import Final

HASH: Final = "xxh64-le-i64"
SEED: Final = 0
MOST_SHARDS: Final = 1_024

_MASK: Final = (1 << 64) - 1
_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5


def shard_of(execution_id: str, count: int) -> int:
    """The shard of a run among so many."""
    return _xxh64(int(execution_id)) % count


def _xxh64(number: int) -> int:
    """XXH64 of exactly eight bytes."""
    hashed = (SEED + _P5 + 8) & _MASK
    lane = _turned(number * _P2 & _MASK, 31) * _P1 & _MASK
    hashed = (_turned(hashed ^ lane, 27) * _P1 + _P4) & _MASK
    hashed = (hashed ^ hashed >> 33) * _P2 & _MASK
    hashed = (hashed ^ hashed >> 29) * _P3 & _MASK
    return hashed ^ hashed >> 32


def _turned(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK

"""Shards: the vectors of the contract, and a map that the server sees differently."""

import pytest

from noetl.api.http import NoAnswer
from noetl.api.runtime import ShardInfo
from noetl.gateway.errors import ShardMapMismatch
from noetl.gateway.shards import Shards, id_of
from noetl.ids import SHARD_HASH, shard_of

COUNTS = (2, 4, 8, 16)
VECTORS = {
    "1": (1, 1, 5, 5),
    "42": (1, 3, 3, 3),
    "325": (0, 0, 4, 4),
    "320816801799737344": (0, 2, 6, 14),
    "9223372036854775807": (0, 0, 4, 12),
    "-1": (1, 1, 1, 9),
}


def server_with(count, **changed):
    """What a server with so many shards answers."""

    async def ask(execution_id):
        told = {
            "execution_id": execution_id,
            "shard_count": count,
            "shard_index": shard_of(execution_id, count),
            "source": "server",
            "hash_function": SHARD_HASH,
            "seed": 0,
            "server_config": {"shard_count": count},
        }
        return ShardInfo(**told | changed)

    return ask


async def away(_execution_id):
    raise NoAnswer("the connection was lost")


@pytest.mark.parametrize("execution_id", VECTORS)
def test_the_vectors_hold(execution_id):
    found = tuple(Shards(("s",) * count).index_of(execution_id) for count in COUNTS)
    assert found == VECTORS[execution_id]


def test_one_shard_or_none_is_the_first():
    assert [Shards(servers).index_of("42") for servers in ((), ("one",))] == [0, 0]


@pytest.mark.parametrize(
    ("given", "found"),
    [("42", "42"), (42, "42"), ("007", "7"), ("-1", "-1"), ("", None), ("abc", None),
     ("1.0", None), (True, None), (None, None), ("--1", None), ("-", None), ("\u0661", None),
     (1 << 63, None), (-(1 << 63), str(-(1 << 63))), ("9" * 5000, None),
     ("9223372036854775808", None)],
)  # fmt: skip
def test_an_id_is_a_number_of_64_bits(given, found):
    assert id_of(given) == found


async def test_a_server_with_another_count_disagrees_until_it_does_not():
    shards = Shards(("a", "b"))
    assert shards.state == "unknown"
    assert await shards.compare(server_with(4)) == "mismatch"
    with pytest.raises(ShardMapMismatch) as caught:
        shards.index_of("1")
    assert (caught.value.status, caught.value.code) == (503, "shard_map_mismatch")
    assert await shards.compare(away) == "mismatch"
    assert await shards.compare(server_with(2)) == "ok"
    assert shards.index_of("1") == 1


@pytest.mark.parametrize(
    "changed", [{"hash_function": "crc32"}, {"seed": 1}, {"shard_index": 1}], ids=str
)
async def test_a_server_that_counts_otherwise_disagrees(changed):
    assert await Shards(("a", "b")).compare(server_with(2, **changed)) == "mismatch"


async def test_a_server_that_is_away_says_nothing():
    shards = Shards()
    assert await shards.compare(away) == "unknown"
    assert shards.index_of("42") == 0
    assert await shards.compare(server_with(1)) == "ok"
    assert await shards.compare(away) == "ok"

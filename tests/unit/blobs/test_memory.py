import pytest

from noetl.blobs.base import BlobDamaged
from noetl.blobs.memory import MemoryBlobs


def test_its_name_in_references_is_kv():
    assert MemoryBlobs().name == "kv"


async def test_a_buffer_that_changes_afterwards_changes_nothing():
    blobs, data = MemoryBlobs(), bytearray(b"abc")
    await blobs.put("a", data)
    data[0] = 0
    assert await blobs.get("a") == b"abc"


async def test_damage_is_found():
    blobs = MemoryBlobs()
    await blobs.put("a", b"abc")
    await blobs.put("b", b"abe")
    object.__setattr__(blobs._objects["a"], "data", b"abe")  # noqa: SLF001 - the damage itself
    with pytest.raises(BlobDamaged):
        await blobs.get("a")

import stat

import pytest

from noetl.blobs.base import BlobDamaged, BlobGone
from noetl.blobs.file import FileBlobs
from noetl.blobs.label import LABEL_BYTES

KEY = "execution/7/result/load/0123"


@pytest.fixture
def root(tmp_path):
    return tmp_path / "deep" / "blobs"


@pytest.fixture
def blobs(root):
    return FileBlobs(root)


async def _drained(stream):
    return [chunk async for chunk in stream]


def test_its_name_in_references_is_disk(blobs):
    assert blobs.name == "disk"


async def test_files_and_folders_are_for_their_owner_only(blobs, root):
    await blobs.put(KEY, b"secret")
    modes = {
        path.relative_to(root.parent).as_posix(): stat.S_IMODE(path.stat().st_mode)
        for path in [root, *root.rglob("*")]
    }
    assert modes == {
        "blobs": 0o700,
        "blobs/execution": 0o700,
        "blobs/execution/7": 0o700,
        "blobs/execution/7/result": 0o700,
        "blobs/execution/7/result/load": 0o700,
        "blobs/execution/7/result/load/0123+": 0o600,
    }


@pytest.mark.parametrize("place", [0, 5, 12, 40, 90, 100, LABEL_BYTES, LABEL_BYTES + 3])
async def test_one_flipped_bit_is_found(blobs, root, place):
    await blobs.put(KEY, b"some bytes", media_type="text/plain")
    path = root / f"{KEY}+"
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(BlobDamaged) as caught:
        await blobs.get(KEY)
    assert caught.value.code == "result_damaged"
    with pytest.raises(BlobDamaged):
        await _drained(blobs.get_stream(KEY))


@pytest.mark.parametrize("kept", [0, 10, LABEL_BYTES, LABEL_BYTES + 4])
async def test_a_file_that_was_cut_is_found(blobs, root, kept):
    await blobs.put(KEY, b"some bytes")
    path = root / f"{KEY}+"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(BlobDamaged):
        await blobs.get(KEY)


async def test_a_file_that_grew_is_found(blobs, root):
    await blobs.put(KEY, b"some bytes")
    with (root / f"{KEY}+").open("ab") as file:
        file.write(b"more")
    with pytest.raises(BlobDamaged):
        await blobs.get(KEY)


async def test_a_header_that_is_not_text_is_found(blobs, root):
    await blobs.put(KEY, b"x")
    (root / f"{KEY}+").write_bytes(b"\xff" * LABEL_BYTES)
    with pytest.raises(BlobDamaged):
        await blobs.head(KEY)


async def test_what_a_crash_left_beside_is_not_listed(blobs, root):
    await blobs.put(KEY, b"x")
    (root / "execution/7/result/load/.0a0b").write_bytes(b"half")
    (root / "execution/7/result/load/.0a0b+").write_bytes(b"half")
    assert await blobs.listed() == [KEY]


async def test_a_put_leaves_only_its_file(blobs, root):
    await blobs.put(KEY, b"x")
    await blobs.put(KEY, b"y")
    assert [path.name for path in root.rglob("*") if path.is_file()] == ["0123+"]


async def test_a_link_is_not_followed(blobs, root, tmp_path):
    await blobs.put(KEY, b"x")
    other = tmp_path / "other"
    other.write_bytes((root / f"{KEY}+").read_bytes())
    (root / "linked+").symlink_to(other)
    with pytest.raises(OSError, match="symbolic"):
        await blobs.get("linked")


async def test_a_second_store_on_the_same_folder_reads_what_the_first_wrote(blobs, root):
    await blobs.put(KEY, b"x")
    assert await FileBlobs(root).get(KEY) == b"x"


async def test_a_folder_that_a_plain_file_stands_in_for_is_an_error_of_the_system(blobs, root):
    root.mkdir(parents=True)
    (root / "execution").write_bytes(b"")
    with pytest.raises(FileExistsError):
        await blobs.put(KEY, b"x")
    with pytest.raises(BlobGone):
        await blobs.get(KEY)

"""Names of workers and their folders; brakes of the machine."""

import pytest

from noetl.worker.brakes import disk_is_full, memory_is_high, memory_limit
from noetl.worker.identity import CannotStart, checked_pool, identified


def test_a_name_is_kept(tmp_path):
    with identified(tmp_path, "shared") as first:
        pass
    with identified(tmp_path, "shared") as second:
        assert second == first
        assert second.folder == tmp_path / "worker" / first.name
        assert second.folder.stat().st_mode & 0o777 == 0o700


def test_workers_side_by_side_have_names_of_their_own(tmp_path):
    with identified(tmp_path, "shared") as one, identified(tmp_path, "shared") as two:
        assert one.name != two.name
        with identified(tmp_path, "system") as three:
            assert three.name not in {one.name, two.name}
    with identified(tmp_path, "system") as again:
        assert again == three


def test_a_given_name_is_taken_once(tmp_path):
    with (
        identified(tmp_path, "shared", "w-1"),
        pytest.raises(CannotStart) as caught,
        identified(tmp_path, "shared", "w-1"),
    ):
        pass
    assert caught.value.code == "worker.already_running"
    with identified(tmp_path, "shared", "w-1") as later:
        assert later.name == "w-1"


@pytest.mark.parametrize("name", ["../x", "a/b", ".hidden", "a b", "x" * 200])
def test_a_name_that_is_no_folder(tmp_path, name):
    with pytest.raises(CannotStart), identified(tmp_path, "shared", name):
        pass


@pytest.mark.parametrize("pool", ["", "a.b", "*", ">", "A", "-x", "a" * 64])
def test_a_bad_pool(pool):
    with pytest.raises(CannotStart) as caught:
        checked_pool(pool)
    assert caught.value.code == "worker.bad_pool"


def test_memory():
    assert memory_is_high(0.8, limit=1 << 20)()
    assert not memory_is_high(0.8, limit=1 << 50)()
    assert not memory_is_high(1.0)()


def test_the_limit_of_the_group(tmp_path):
    file = tmp_path / "memory.max"
    file.write_text("1048576\n")
    assert memory_limit((tmp_path / "none", file)) == 1 << 20
    file.write_text("max\n")
    assert memory_limit((file,)) > 1 << 20


def test_the_disk(tmp_path):
    assert not disk_is_full(tmp_path / "nowhere")()
    assert disk_is_full(tmp_path)() in {True, False}

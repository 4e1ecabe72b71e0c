"""What is covered for children, and what is shown again."""

from __future__ import annotations

from pathlib import Path

from noetl.tools.interpreter import masks
from noetl.tools.interpreter.limits import Limits, over_limit, used_bytes
from noetl.tools.interpreter.sandbox import Sandbox, Walls

TMP = Path("/nowhere")  # the folders of these tests lie in the real one


def test_folders_are_covered_and_files_are_empty(tmp_path):
    (tmp_path / "home" / "venv").mkdir(parents=True)
    (tmp_path / "home" / "inner").mkdir()
    (tmp_path / "token").write_text("x")
    home, token = str(tmp_path / "home"), str(tmp_path / "token")
    words = masks.words(
        [tmp_path / "home", tmp_path / "home" / "inner", tmp_path / "token", tmp_path / "missing"],
        [tmp_path / "home" / "venv", tmp_path / "elsewhere"],
        tmp=TMP,
    )
    assert words == [
        "--tmpfs", home, "--ro-bind", "/dev/null", token,
        "--ro-bind", f"{home}/venv", f"{home}/venv", "--remount-ro", home,
    ]  # fmt: skip


def test_a_closed_folder_covers_itself_for_others(tmp_path):
    (tmp_path / "closed" / "inner").mkdir(parents=True)
    (tmp_path / "closed").chmod(0o700)
    assert masks.words([tmp_path / "closed" / "inner"], [], is_other=True, tmp=TMP) == []
    assert masks.words([tmp_path / "closed" / "inner"], [], tmp=TMP)


def test_a_link_to_a_place_is_that_place(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert masks.words([tmp_path / "link"], [], tmp=TMP) == [
        "--tmpfs", str(tmp_path / "real"), "--remount-ro", str(tmp_path / "real"),
    ]  # fmt: skip


def test_what_lies_in_tmp_is_covered_already():
    assert masks.words([Path("/tmp/x")], []) == []  # noqa: S108 - only its name


def test_the_home_of_an_author_is_covered_in_parts():
    author = set(masks.usual(Path("/home/ada")))
    assert Path("/home/ada/.ssh") in author
    assert not author & {Path("/home"), Path("/root"), Path("/home/ada")}
    assert {Path("/home"), Path("/root"), Path("/run")} <= set(masks.usual())


def test_what_a_folder_holds_is_counted_until_it_is_too_much(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(bytes(10_000))
    assert 10_000 <= used_bytes(tmp_path, 1 << 30) <= 40_000
    for n in range(50):
        (tmp_path / f"{n}").touch()
    assert used_bytes(tmp_path, 8192) <= 8192 + 4096
    assert over_limit(0, tmp_path, Limits(disk_mb=1, memory_mb=None, procs=None)) is None


def test_strict_walls_have_a_filter_and_no_network(tmp_path):
    sandbox = Sandbox(level="namespaces", bwrap="/usr/bin/bwrap")
    made = sandbox.confine(Walls(strict=True), tmp_path)
    assert made.filter
    assert "--unshare-net" in made.prefix
    assert not sandbox.confine(Walls(), tmp_path).filter

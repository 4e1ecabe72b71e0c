import asyncio
import socket
import stat

import pytest

from noetl.local.embedded.home import FOLDERS, Home, HomeUnusable
from noetl.local.embedded.logs import Logs, follow, logged, tail
from noetl.local.embedded.ports import PortInUse, claim_port, free_port, owner


@pytest.fixture
def home(tmp_path):
    made = Home(tmp_path / "home")
    made.make()
    return made


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_all_folders_are_for_their_owner_alone(home):
    assert {mode(home.path), *(mode(home.folder(name)) for name in FOLDERS)} == {0o700}


def test_the_mode_of_a_folder_that_was_there_is_not_changed(tmp_path):
    (tmp_path / "mine").mkdir(mode=0o755)
    Home(tmp_path / "mine").make()

    assert mode(tmp_path / "mine") == 0o755


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(HomeUnusable, match="file/home cannot be used"):
        Home(tmp_path / "file" / "home").make()


def test_a_secret_is_made_once(home):
    assert home.secret("a", lambda: "first") == "first"
    assert home.secret("a", lambda: "second") == "first"
    assert mode(home.secret_file("a")) == 0o600
    assert home.keep("a", "third").read_text() == "third\n"
    assert mode(home.secret_file("a")) == 0o600


def test_only_one_holds_a_folder(home):
    with home.locked() as first, home.locked() as second:
        assert (first, second) == (True, False)
    with home.locked() as third:
        assert third is True


def test_a_wipe_deletes_data_and_secrets(home):
    home.keep("a", "x")
    home.wipe()

    assert sorted(path.name for path in home.path.iterdir()) == ["run"]


def test_lines_are_kept_shown_and_put_aside_when_there_are_many(home):
    shown = []
    logs = Logs(home, lambda part, line: shown.append((part, line)), most_bytes=4)
    for line in ("first", "second"):
        logs.line("server", line)
    logs.close()

    assert shown == [("server", "first"), ("server", "second")]
    assert logs.last("server") == ["first", "second"]
    assert home.log("server").read_text() == "second\n"
    assert home.log("server").with_suffix(".log.1").read_text() == "first\n"
    assert mode(home.log("server")) == 0o600


def test_the_last_lines_of_each_part_are_told(home):
    home.log("a").write_text("".join(f"{n:06}\n" for n in range(30_000)))
    home.log("b").write_text("one\ntwo")

    assert logged(home) == ["a", "b"]
    assert tail(home, ["a", "b"], 2) == [
        ("a", "029998"), ("a", "029999"), ("b", "one"), ("b", "two"),
    ]  # fmt: skip
    assert len(tail(home, ["a"], 20_000)) == 20_000
    assert tail(home, ["a", "c"], 0) == []


async def test_lines_are_followed_from_now_on_also_into_a_new_file(home):
    home.log("a").write_text("old\nha")
    lines = follow(home, ["a"])
    next_line = asyncio.ensure_future(anext(lines))
    await asyncio.sleep(0)  # the end of the file is found now
    with home.log("a").open("a") as file:
        file.write("lf\nmore\n")

    assert await next_line == ("a", "lf")
    assert await anext(lines) == ("a", "more")
    home.log("a").write_text("x\n")
    assert await anext(lines) == ("a", "x")
    await lines.aclose()


def test_a_port_that_is_taken_is_refused_with_its_owner():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        with pytest.raises(PortInUse, match=f"Port {port} of 127.0.0.1 is in use by process"):
            claim_port("127.0.0.1", port)
        assert owner(port) is not None
    assert owner(port) is None
    assert claim_port("127.0.0.1", port) == port
    assert claim_port("127.0.0.1", 0) > 0
    assert free_port() > 0

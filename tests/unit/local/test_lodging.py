import asyncio
import pwd
from types import SimpleNamespace

import pytest

from noetl.local import lodging


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine without the user, on which two programs at once would make it twice."""
    users = tmp_path / "users"
    users.touch()
    program = tmp_path / "useradd"

    def getpwnam(name):
        lines = users.read_text().split()
        if name not in lines:
            raise KeyError(name)
        return SimpleNamespace(pw_name=name, pw_uid=len(lines))

    def made(text):
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)

    made(f'sleep 0.05; for word in "$@"; do name=$word; done; echo "$name" >> {users}')
    monkeypatch.setattr(lodging, "SHARED", tmp_path / "shared")
    monkeypatch.setattr(lodging.shutil, "which", lambda *_, **__: str(program))
    monkeypatch.setattr(
        lodging, "pwd", SimpleNamespace(getpwnam=getpwnam, struct_passwd=pwd.struct_passwd)
    )
    return SimpleNamespace(users=users, made=made)


async def test_many_that_start_at_once_make_one_user(machine):
    found = await asyncio.gather(*(asyncio.to_thread(lodging.system_user) for _ in range(6)))

    assert [one.pw_uid for one in found] == [1] * 6
    assert machine.users.read_text() == "noetl\n"


async def test_what_the_program_says_is_told(machine):
    machine.made("echo the disk is full >&2; exit 1")

    with pytest.raises(lodging.EmbeddedUnavailable, match="the disk is full"):
        lodging.system_user()

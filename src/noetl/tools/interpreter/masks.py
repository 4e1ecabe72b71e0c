"""What a walled child does not see of the machine's files."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Sockets of services, tokens that a cluster mounts, and what others keep for a while.
SHARED: Final = ("/run", "/var/run", "/var/tmp")  # noqa: S108 - hidden, not used
HOMES: Final = ("/root", "/home")
SECRET_FILES: Final = (
    "/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/krb5.keytab",
)  # fmt: skip
SECRET_FOLDERS: Final = ("/etc/ssl/private", "/etc/kubernetes", "/var/lib/kubelet", "/etc/ssh")
# Of somebody who runs their own playbooks: all of the home but what opens other doors.
KEPT_FROM_OWN: Final = (
    ".ssh", ".gnupg", ".aws", ".azure", ".config/gcloud", ".kube", ".docker", ".netrc", ".pgpass",
    ".noetl", ".config/noetl", ".git-credentials", ".pypirc", ".npmrc", ".mozilla", ".bash_history",
)  # fmt: skip
_SYSTEM: Final = tuple(map(Path, ("/usr", "/bin", "/sbin", "/lib", "/dev", "/etc", "/proc")))
_TMP: Final = Path("/tmp")  # noqa: S108 - the child's own
_EMPTY: Final = "/dev/null"
_NAMES: Final = Path("/etc/resolv.conf")


def words(
    hidden: Iterable[Path], shown: Iterable[Path], *, is_other: bool = False, tmp: Path = _TMP
) -> list[str]:
    """Options that cover places, and then show those below them that a child needs.

    The child's own temporary folder covers all below it already. A child of another user does not
    get to what lies in a closed folder, and nobody can cover it in its name.
    """
    made: list[str] = []
    covered = [tmp]
    for path in sorted({_real(one) for one in hidden}):
        if any(path.is_relative_to(one) for one in covered) or (is_other and _is_closed(path)):
            continue
        if path.is_dir():
            covered.append(path)
            made += ["--tmpfs", str(path)]
        elif path.exists():
            made += ["--ro-bind", _EMPTY, str(path)]
    for path in dict.fromkeys(_real(one) for one in shown):
        if path.exists() and any(path.is_relative_to(one) for one in covered):
            made += ["--ro-bind", str(path), str(path)]
    for path in covered[1:]:
        made += ["--remount-ro", str(path)]
    return made


def usual(home: Path | None = None) -> Iterator[Path]:
    """Places that no child sees; with a home, that one is covered in parts only."""
    yield Path(tempfile.gettempdir())  # work folders of others
    for name in (*SHARED, *SECRET_FILES, *SECRET_FOLDERS):
        yield Path(name)
    if home is None:
        yield from (Path(name) for name in HOMES)
        own = Path.home()
        if not any(own == top or own.is_relative_to(top) for top in _SYSTEM) and own != Path("/"):
            yield own
        return
    yield from (home / name for name in KEPT_FROM_OWN)


def needed() -> Iterator[Path]:
    """Places that an interpreter needs, wherever they lie."""
    yield Path(sys.prefix)
    yield Path(sys.base_prefix)
    yield Path(__file__).parents[3]  # where this package lies
    if _NAMES.is_symlink():
        yield Path(os.path.realpath(_NAMES))


def _is_closed(path: Path) -> bool:
    """Whether others cannot get to a place."""
    return not all(one.stat().st_mode & stat.S_IXOTH for one in path.parents if one.exists())


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))

"""Work folders of children: named after the process that made them, swept when it is gone.

They lie in the system's temporary folder, since a child may run as somebody who cannot reach ours.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Final

_NAME: Final = re.compile(r"noetl-(\d+)-[^/]+\Z")


def made(mode: int) -> Path:
    """A new folder of this process."""
    folder = Path(tempfile.mkdtemp(prefix=f"noetl-{os.getpid()}-"))
    folder.chmod(mode)
    return folder


def sweep() -> int:
    """Remove folders of ours whose process was killed before it could; how many there were."""
    count = 0
    for folder in Path(tempfile.gettempdir()).iterdir():
        found = _NAME.match(folder.name)
        if found is None or _is_alive(int(found[1])) or folder.is_symlink():
            continue
        try:
            if folder.stat().st_uid != os.geteuid():
                continue
        except FileNotFoundError:
            continue  # another process sweeps as well
        shutil.rmtree(folder, ignore_errors=True)
        count += 1
    return count


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

"""Volumes of a test: a small one that is filled, and one whose power is cut.

Both are mounted, which takes the right to mount; `Lacking` says that this machine refuses it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from tests.reliability.rig import copied

PASSABLE = 0o711
BALLOON = "balloon"
MIB = 1 << 20
SETTLED_S = 5.0


class Lacking(Exception):
    """What a scenario needs and the machine has not."""


async def _run(*words):
    """Run a program; what it says when it fails."""
    try:
        child = await asyncio.create_subprocess_exec(
            *map(str, words), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
    except FileNotFoundError:
        raise Lacking(f"there is no program {words[0]}") from None
    said, _ = await child.communicate()
    if child.returncode:
        raise Lacking(f"{words[0]} was refused: {said.decode(errors='replace').strip()}")
    return said.decode().strip()


async def synced(folder):
    """Bring what was written so far to the disk of a folder."""
    await _run("sync", "--file-system", folder)


async def _unmounted(folder):
    """Let go of a volume; whoever was killed may still be about to leave it."""
    for _ in range(50):
        with suppress(Lacking):
            return await _run("umount", folder)
        await asyncio.sleep(0.1)
    return await _run("umount", "--lazy", folder)


class Volume:
    """A small filesystem in memory."""

    def __init__(self, folder):
        self.folder = folder

    @property
    def free_bytes(self):
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize

    def fill(self):
        """Take every byte that is left."""
        with (self.folder / BALLOON).open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(b"\0" * max(min(self.free_bytes, MIB), 1))

    def free(self):
        """Give the bytes back."""
        (self.folder / BALLOON).unlink(missing_ok=True)


@asynccontextmanager
async def small(folder, megabytes):
    """A volume of so many megabytes at a folder."""
    folder.mkdir(mode=PASSABLE, parents=True, exist_ok=True)
    options = f"size={megabytes}m,mode={PASSABLE:o}"
    await _run("mount", "-t", "tmpfs", "-o", options, "tmpfs", folder)
    try:
        yield Volume(folder)
    finally:
        await _unmounted(folder)


class Disk:
    """A filesystem on an image file; a copy of the image is what a power cut leaves.

    What was written and not synced is in the memory of the kernel and not in the image, so it is
    lost. The image is copied while nothing is written to it: once the counter of writes of its
    device is the same before and after. The processes that write must have been stopped.
    """

    def __init__(self, image, folder):
        self.image = image
        self.folder = folder

    async def make(self, megabytes):
        """A new and empty one, mounted."""
        with self.image.open("wb") as file:
            file.truncate(megabytes * MIB)
        await _run("mkfs.ext4", "-q", "-F", "-m", "0", self.image)
        await self._mount()

    async def cut(self):
        """Copy the image as it is now; the file of the copy."""
        copy = self.image.with_suffix(".cut")
        until = asyncio.get_running_loop().time() + SETTLED_S
        while True:
            before = await self._writes()
            await _run("cp", "--sparse=always", self.image, copy)
            if before == await self._writes():
                return copy
            if asyncio.get_running_loop().time() > until:
                raise Lacking(f"{self.image} did not come to rest within {SETTLED_S:g} s")

    async def back(self, copy):
        """Go on from a copy; nobody may use the folder any more."""
        await _unmounted(self.folder)
        copy.replace(self.image)
        await self._mount()

    async def drop(self):
        """Let go of it for good."""
        await _unmounted(self.folder)
        self.image.unlink()

    async def _mount(self):
        await _run("mount", "-o", "loop", self.image, self.folder)
        self.folder.chmod(PASSABLE)

    async def _writes(self):
        """How often the device was written to."""
        device = Path(await _run("findmnt", "-n", "-o", "SOURCE", "--target", self.folder)).name
        return (Path("/sys/block") / device / "stat").read_text().split()[4]


class Folder:
    """What stands for a disk where none can be mounted: a plain folder, copied as it is.

    A copy holds what was written, synced or not: it proves that the parts go on from any point
    in time, and not that they sync what they answer.
    """

    def __init__(self, folder):
        self.folder = folder

    async def cut(self):
        """Copy all files as they are now; the folder of the copy."""
        copy = self.folder.with_name(f"{self.folder.name}.cut")
        await asyncio.to_thread(copied, self.folder, copy)
        return copy

    async def back(self, copy):
        """Go on from a copy; nobody may use the folder any more."""
        await asyncio.to_thread(shutil.rmtree, self.folder)
        copy.rename(self.folder)


@asynccontextmanager
async def disk(folder, megabytes):
    """A disk at an empty folder, from an image beside it where this machine mounts one."""
    made = Disk(folder.with_name(f"{folder.name}.img"), folder)
    try:
        await made.make(megabytes)
    except Lacking:
        made.image.unlink(missing_ok=True)
        yield Folder(folder)
        return
    try:
        yield made
    finally:
        await made.drop()

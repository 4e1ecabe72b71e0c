"""What is left over is found."""

from __future__ import annotations

import asyncio
import os

from tests.reliability.processes import strays


async def test_a_process_that_stands_in_a_folder_is_found_unless_one_of_ours_began_it(tmp_path):
    left = await asyncio.create_subprocess_exec("sleep", "60", cwd=tmp_path)
    try:
        assert strays(tmp_path, set()) == [left.pid]
        assert strays(tmp_path, {os.getpid()}) == []
        assert strays(tmp_path / "other", set()) == []
    finally:
        left.kill()
        await left.wait()
    assert strays(tmp_path, set()) == []

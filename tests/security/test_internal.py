"""The internal matrix: who is let through to routes that only the platform itself uses."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from tests.security.people import INNER, ask, asked, code, person
from tests.unit.server.rig import rig, virtually

PREFIX = "/api/internal/"


def internal(r):
    return [route for route in r.server.asgi.routes if route.path.startswith(PREFIX)]


@virtually
async def test_the_whole_prefix_asks_for_the_internal_permission() -> None:
    async with rig(is_open=False) as r:
        assert internal(r)
        assert {route.permission for route in internal(r)} == {"internal"}


@virtually
async def test_without_an_internal_token_the_prefix_is_closed_to_everybody() -> None:
    for blank in ((), ("",), ("  ",)):
        async with rig(is_open=False, internal_tokens=blank) as r:
            system = await person(r, "system")
            for route in internal(r):
                for bearer in (None, "", "  ", system):
                    found = await code(r, bearer, *asked(route))
                    assert found == (503, "internal_token_unset")


@virtually
async def test_only_the_internal_token_and_the_services_of_a_route_are_let_in() -> None:
    async with rig(is_open=False, internal_tokens=(INNER, "the one before")) as r:
        tokens = {name: await person(r, name) for name in ("admin", "worker", "gateway", "runtime")}
        system = await person(r, "system")
        for route in internal(r):
            await asyncio.sleep(61)  # ten wrong tokens a minute are enough
            method, path = asked(route)
            refused = (403, "internal_token_mismatch")
            assert await code(r, None, method, path) == refused
            long = "x" * 1_000_000
            for bearer in ("", "wrong", INNER.upper(), f"{INNER}x", INNER[:-1], "ü", long):
                assert await code(r, bearer, method, path) == refused
            assert await code(r, f"Basic {INNER}", method, path) == refused
            for name, token in tokens.items():
                is_its_own = name in route.declared.services
                assert (await code(r, token, method, path) == refused) == (not is_its_own)
            for bearer in (INNER, "the one before", system):
                assert await code(r, bearer, method, path) != refused
                assert (await ask(r, f"bEARER {bearer}", method, path))[0] not in {401, 403, 503}


@virtually
async def test_the_internal_token_is_read_again_when_its_file_changes() -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "token"
        file.write_text("first\n", encoding="utf-8")
        more = {"internal_token_file": file, "internal_tokens": ("older",)}
        async with rig(is_open=False, **more) as r:
            route = asked(internal(r)[0])
            refused = (403, "internal_token_mismatch")
            for bearer, is_refused in (("first", False), ("older", False), ("second", True)):
                assert (await code(r, bearer, *route) == refused) == is_refused
            new = file.with_suffix(".new")
            new.write_text("second\n", encoding="utf-8")
            new.replace(file)
            await asyncio.sleep(1)
            for bearer, is_refused in (("first", True), ("older", False), ("second", False)):
                assert (await code(r, bearer, *route) == refused) == is_refused
            file.unlink()
            await asyncio.sleep(1)
            assert await code(r, "second", *route) != refused

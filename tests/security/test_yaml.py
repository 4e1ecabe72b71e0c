"""Documents that are made to exhaust whoever reads them: refused soon, and small in memory."""

from __future__ import annotations

import time
import tracemalloc

import msgspec
import pytest

from tests.security.asking import sent
from tests.security.people import INNER, person
from tests.unit.server.rig import rig, virtually

SHUT = {"is_open": False, "internal_tokens": (INNER,)}
HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: x, path: a/b}\n"
MIB = 2**20
MOST_BYTES = 20 * MIB
MOST_S = 2.0
"""Of this process, whatever others do meanwhile; the target of 50 ms is one without a tracer."""


def laughs(width: int, depth: int) -> str:
    """Each line names the one before many times."""
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, depth)]
    return HEAD + "\n".join(lines) + "\n"


def merges(depth: int) -> str:
    """Each map takes in the one before twice."""
    lines = ["m0: &m0 {x: 1}"]
    lines += [f"m{n}: &m{n} {{<<: [*m{n - 1}, *m{n - 1}], k{n}: 1}}" for n in range(1, depth)]
    return HEAD + "\n".join(lines) + "\n"


DOCUMENTS = {
    "aliases": laughs(10, 12),
    "many aliases": HEAD + "a: &a 1\nb: [" + "*a, " * 2000 + "*a]\n",
    "merges": merges(60),
    "deep flow": HEAD + "a: " + "[" * 10_000 + "]" * 10_000 + "\n",
    "deep block": HEAD + "".join(" " * n + "a:\n" for n in range(1_000)),
    "long scalar": HEAD + "a: " + "x" * (MIB + 1) + "\n",
    "tag": HEAD + "a: !!python/object/apply:os.system ['true']\n",
    "key twice": HEAD + "kind: Playbook\n",
    "itself": HEAD + "a: &a [*a]\n",
    "many documents": (HEAD + "---\n") * 1_000,
    "many keys": HEAD + "".join(f"k{n}: 1\n" for n in range(5_000)),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_that_exhausts_is_refused_soon(name: str) -> None:
    async def steps() -> None:
        async with rig(**SHUT) as r:
            token = await person(r, "admin")
            headers = {"authorization": f"Bearer {token}"}
            body = msgspec.json.encode({"content": DOCUMENTS[name]})
            await sent(r.server.asgi, "POST", "/api/catalog/register", headers, b'{"content":""}')
            tracemalloc.start()
            began = time.process_time()
            told = await sent(r.server.asgi, "POST", "/api/catalog/register", headers, body)
            took = time.process_time() - began
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert (told.status, told.code) in {(422, "invalid_playbook"), (413, "body_too_large")}
            assert took < MOST_S, f"{took:.2f} s"
            assert peak < MOST_BYTES + 2 * len(body), f"{peak / MIB:.1f} MiB"
            assert len(told.body) < MIB

    virtually(steps)()

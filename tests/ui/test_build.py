"""What `make ui` builds: small, whole, and nothing from elsewhere."""

from __future__ import annotations

import re

from noetl.gateway.routes.pages import PAGE, STATIC

MOST_CLIENT_BYTES = 20 * 1024
ADDRESS = re.compile(rb"https?://(?!www\.w3\.org/)[a-z0-9.-]+")


def test_the_client_is_small_and_needs_nothing():
    client = (STATIC / "client" / "noetl-client.js").read_bytes()
    assert 0 < len(client) <= MOST_CLIENT_BYTES
    assert re.findall(rb"\bimport\b", client) == []
    assert b"export{" in client


def test_the_types_tell_everything_that_is_exported():
    types = (STATIC / "client" / "noetl-client.d.ts").read_text()
    assert "export declare class NoetlClient" in types
    assert "export declare class NoetlError" in types
    assert "import" not in re.sub(r"/\*\*.*?\*/", "", types, flags=re.DOTALL)


def test_a_page_names_only_files_that_are_there():
    page = (STATIC / PAGE).read_text()
    named = re.findall(r'(?:src|href)="/(ui/[^"]+)"', page)
    assert len(named) == 2
    assert [name for name in named if not (STATIC / name).is_file()] == []
    assert all(re.search(r"-[0-9a-f]{12}\.(js|css)$", name) for name in named)


def test_no_file_names_another_origin():
    files = [path for path in STATIC.rglob("*") if path.is_file()]
    assert {path.name: ADDRESS.findall(path.read_bytes()) for path in files} == {
        path.name: [] for path in files
    }

"""The pages of the gateway: what is served, how long it is kept, and what a page may do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from starlette.applications import Starlette

from noetl.api.http import AsgiTransport
from noetl.gateway.cors import page_headers
from noetl.gateway.routes import pages
from tests.unit.gateway.rig import gateway_rig

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from noetl.api.http import Answer
    from tests.unit.gateway.rig import GatewayRig

SESSION = {"cookie": "noetl_session=nts_x", "host": "localhost"}


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """What a build leaves."""
    for name, text in {
        "index.html": "<!doctype html><title>it</title>",
        "ui/app-0123456789ab.js": "export {};",
        "ui/app-0123456789ab.css": "p { }",
        "client/noetl-client.js": "export class NoetlClient {}",
        "client/noetl-client.d.ts": "export declare class NoetlClient {}",
        ".stamp": "secret of the build",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


async def got(
    rig: GatewayRig, folder: Path, path: str, headers: Mapping[str, str] | None = None
) -> Answer:
    """What these routes answer on a folder."""
    app = Starlette(routes=pages.routes(rig.gate, folder))
    return await AsgiTransport(app).request(
        "GET", path, b"", {"host": "localhost", **(headers or {})}
    )


@pytest.mark.parametrize("path", ["/", "/playground"])
async def test_whoever_has_no_session_is_sent_to_sign_in(built: Path, path: str) -> None:
    async with gateway_rig() as rig:
        answer = await got(rig, built, path)
        assert (answer.status, answer.headers["location"]) == (302, "/login")
        assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("path", "headers"), [("/", SESSION), ("/playground", SESSION), ("/login", {})]
)
async def test_a_page_is_never_kept(built: Path, path: str, headers: dict[str, str]) -> None:
    async with gateway_rig() as rig:
        answer = await got(rig, built, path, headers)
        assert (answer.status, answer.body) == (200, b"<!doctype html><title>it</title>")
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["content-type"] == "text/html; charset=utf-8"


@pytest.mark.parametrize(
    ("path", "media_type", "caching"),
    [
        ("/ui/app-0123456789ab.js", "text/javascript", "public, max-age=31536000, immutable"),
        ("/ui/app-0123456789ab.css", "text/css", "public, max-age=31536000, immutable"),
        ("/client/noetl-client.js", "text/javascript", "public, no-cache"),
        ("/client/noetl-client.d.ts", "text/plain", "public, no-cache"),
    ],
)
async def test_a_file_has_a_tag_and_is_sent_once(
    built: Path, path: str, media_type: str, caching: str
) -> None:
    async with gateway_rig() as rig:
        answer = await got(rig, built, path)
        assert answer.status == 200
        assert answer.headers["content-type"].startswith(media_type)
        assert answer.headers["cache-control"] == caching
        assert answer.headers["x-content-type-options"] == "nosniff"
        tag = answer.headers["etag"]
        again = await got(rig, built, path, {"if-none-match": f'"other", {tag}'})
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)


@pytest.mark.parametrize(
    "path",
    ["/ui/none.js", "/ui/", "/ui/.stamp", "/ui/../.stamp", "/ui/../index.html", "/ui//etc/passwd"],
)
async def test_what_was_not_built_is_not_served(built: Path, path: str) -> None:
    async with gateway_rig() as rig:
        answer = await got(rig, built, path)
        assert answer.status == 404
        assert b"not_found" in answer.body


async def test_a_gateway_without_pages_says_how_they_are_built(tmp_path: Path) -> None:
    async with gateway_rig() as rig:
        page = await got(rig, tmp_path / "none", "/login")
        assert page.status == 503
        assert b"make ui" in page.body
        client = await got(rig, tmp_path / "none", "/client/noetl-client.js")
        assert client.status == 404
        assert b"make ui" in client.body


async def test_pages_that_are_built_later_are_found(tmp_path: Path) -> None:
    async with gateway_rig() as rig:
        app = AsgiTransport(Starlette(routes=pages.routes(rig.gate, tmp_path)))
        assert (await app.request("GET", "/login")).status == 503
        (tmp_path / "index.html").write_text("here")
        assert (await app.request("GET", "/login")).body == b"here"


async def test_a_page_may_load_nothing_from_elsewhere_and_run_no_script_of_its_own() -> None:
    async with gateway_rig() as rig:
        answer = await rig.caller().get("/login")
        told = answer.headers
        for name, value in page_headers(is_https=False).items():
            assert told[name.lower()] == value
        policy = told["content-security-policy"]
        assert "unsafe" not in policy
        assert "http" not in policy
        for rule in (
            "default-src 'self'",
            "script-src 'self'",
            "object-src 'none'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
        ):
            assert f"{rule};" in f"{policy};"


async def test_the_source_of_the_page_holds_no_script_and_no_style() -> None:
    page = (pages.STATIC.parents[3] / "ui/src/demo/index.html").read_text()
    assert page.count("<script") == page.count("</script>") == 1
    assert "></script>" in page
    assert "<style" not in page
    assert "style=" not in page
    assert " on" not in "".join(part.partition(">")[0] for part in page.split("<"))

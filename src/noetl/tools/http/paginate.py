"""Follows pages inside one task; where it is, is kept for the next try."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from noetl.dsl.paths import NoSuchPath, found_at
from noetl.dsl.template import UndefinedName, compile_condition, is_true, render
from noetl.tools.base import ToolError
from noetl.tools.http.request import KEYED, joined

if TYPE_CHECKING:
    from noetl.dsl.tasks.calls import Paginate
    from noetl.dsl.views import Outcome
    from noetl.tools.base import ToolContext
    from noetl.tools.http.exchange import Exchange
    from noetl.tools.http.request import Request


KEEP_S: Final = 5.0
_LINK: Final = re.compile(r'<(?P<to>[^>]*)>(?P<about>(?:[^",]|"[^"]*")*)')
_REL: Final = re.compile(
    r';\s*rel\s*=\s*(?:"(?P<quoted>[^"]*)"|(?P<plain>[^\s;,"]+))', re.IGNORECASE
)


@dataclass(slots=True)
class _Progress:
    """How far the pages are: what was found, and what leads to the next one."""

    items: list[Any] = field(default_factory=list)
    pages: int = 0
    next: Any = None

    def keep(self, ctx: ToolContext) -> None:
        """Let the next try begin at the next page; it costs a look at every item."""
        if self.pages:
            ctx.keep({"items": list(self.items), "pages": self.pages, "next": self.next})


async def pages(exchange: Exchange, first: Request, paginate: Paginate) -> Outcome:
    """All items in their order; a page that fails is the failure, and the next try begins there."""
    ctx, clock = exchange.ctx, exchange.clock
    at, kept_at = _resumed(ctx.resume), clock.monotonic()
    request = first if at.pages == 0 else _turned(first, at, paginate, ctx)
    while True:
        try:
            outcome = await exchange.ask(request)
        except BaseException:  # also a task that ran out of time
            at.keep(ctx)
            raise
        if outcome.status != "ok":
            at.keep(ctx)
            return outcome
        if outcome.ref is not None:
            message = "a page is larger than `max_bytes`, or was asked for as a blob"
            raise ToolError("limit", "output_limit", message)
        page = cast("dict[str, Any]", outcome.data)
        found = _items(page["body"], paginate.items)
        at.items += found
        at.pages += 1
        links = links_of(page["headers"].get("link", ""))
        scope = _scope(page | {"number": at.pages, "items": found, "links": links}, ctx)
        at.next = await ctx.touched(partial(_next, paginate, scope))
        is_over = await ctx.touched(partial(_is_until, paginate.until, scope))
        _tell(at, paginate, ctx)
        if is_over or _is_last(at, paginate, ctx):
            del at.items[int(paginate.max_items) :]
            data = {"items": at.items, "pages": at.pages, "last": page}
            return replace(outcome, data=data)
        if clock.monotonic() - kept_at >= KEEP_S:  # this worker may be lost
            kept_at = clock.monotonic()
            at.keep(ctx)
        request = _turned(first, at, paginate, ctx)


def _resumed(kept: object) -> _Progress:
    """Where an earlier try stopped; anything else than our own state begins anew."""
    if not isinstance(kept, Mapping):
        return _Progress()
    items, count = kept.get("items"), kept.get("pages")
    if not isinstance(items, list) or not isinstance(count, int) or not kept.get("next"):
        return _Progress()
    return _Progress(items=list(items), pages=count, next=kept["next"])


def _items(body: Any, path: str | None) -> list[Any]:  # noqa: ANN401 - any answer
    if path is None:
        return list(body) if isinstance(body, list) else [body]
    try:
        found = found_at(body, path)
    except NoSuchPath as fault:
        raise ToolError("schema", "no_items", f"/paginate/items: {fault}") from None
    if found is None:
        return []
    if not isinstance(found, list):
        raise ToolError("schema", "no_items", f"/paginate/items: {path} is no list")
    return found


def _scope(page: Mapping[str, Any], ctx: ToolContext) -> Mapping[str, Any]:
    outside = cast("MutableMapping[str, Any]", ctx.scope)  # only read
    return ChainMap({"page": page}, outside)


def links_of(header: str) -> dict[str, str]:
    """Addresses by what they lead to, as the header `Link` has them (RFC 8288)."""
    found: dict[str, str] = {}
    for link in _LINK.finditer(header):
        named = _REL.search(link["about"])
        for word in (named["plain"] or named["quoted"] or "").split() if named else ():
            found.setdefault(word.lower(), link["to"])
    return found


def _next(paginate: Paginate, scope: Mapping[str, Any]) -> object:
    """What leads on; an answer that lacks it is the last one."""
    try:
        return render(paginate.next, scope)
    except UndefinedName as fault:
        if fault.name.split(".")[0] == "page":
            return None
        raise


def _tell(at: _Progress, paginate: Paginate, ctx: ToolContext) -> None:
    share = max(at.pages / int(paginate.max_pages), len(at.items) / int(paginate.max_items))
    ctx.progress(min(99.0, share * 100), f"page {at.pages}, {len(at.items)} items")


def _is_last(at: _Progress, paginate: Paginate, ctx: ToolContext) -> bool:
    if not at.next:
        return True
    if at.pages < int(paginate.max_pages) and len(at.items) < int(paginate.max_items):
        return False
    ctx.log(f"stopped at the limit of pages or items, after page {at.pages}", level="warning")
    return True


def _is_until(until: bool | str | None, scope: Mapping[str, Any]) -> bool:  # noqa: FBT001 - a condition
    if until is None or isinstance(until, bool):
        return until is True
    return is_true(compile_condition(until).render(scope))


def _turned(first: Request, at: _Progress, paginate: Paginate, ctx: ToolContext) -> Request:
    """The request of the next page."""
    request = first
    if first.method in KEYED and first.headers.get("idempotency-key") == ctx.idempotency_key:
        request = first.with_header("idempotency-key", f"{ctx.idempotency_key}/{at.pages + 1}")
    if paginate.into == "url":
        return request.at(joined(first.url, str(at.next)))
    more = _named(at.next, paginate)
    if paginate.into == "params":
        return request.with_params(more)
    body = msgspec.json.decode(first.content) if isinstance(first.content, bytes) else {}
    if not isinstance(body, dict):
        raise ToolError("config", "invalid_config", "/paginate/into: the body is no JSON map")
    return request.with_json({**body, **more})


def _named(value: Any, paginate: Paginate) -> dict[str, Any]:  # noqa: ANN401 - what a template gave
    if isinstance(value, Mapping):
        return dict(value)
    if not paginate.param:
        message = f"/paginate/param: names the key that {paginate.into} gets"
        raise ToolError("config", "invalid_config", message)
    return {paginate.param: value}

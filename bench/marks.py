"""Parts of pages that programs write: each stands between two marks of its name."""

from __future__ import annotations


class NoMark(SystemExit):
    """A page has no place for a part."""


def placed(page: str, name: str, part: str) -> str:
    """The page with a new part between the marks of a name."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, is_begun, rest = page.partition(begin)
    _, is_ended, after = rest.partition(end)
    if not is_begun or not is_ended:
        raise NoMark(f"the page has no `{begin}` .. `{end}`")
    return f"{before}{begin}\n{part}\n{end}{after}"

"""The forms in which a secret may reach a sink, and what stands in its place."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, quote_plus

if TYPE_CHECKING:
    from collections.abc import Iterator

MASK: Final = "***"
SHORT: Final = 6
"""A secret with fewer characters is one as a whole word only."""
_LINE_LEAST: Final = 12
_INNER_LEAST: Final = 12


def forms_of(secret: str) -> Iterator[str]:
    """The forms in which a secret may reach a sink."""
    yield secret
    if len(secret) < SHORT:
        return
    for plain in (True, False):
        yield json.dumps(secret, ensure_ascii=plain)[1:-1]
    yield quote(secret, safe="")
    yield quote_plus(secret)
    raw = secret.encode("utf-8", "surrogatepass")
    for alphabet in (base64.b64encode, base64.urlsafe_b64encode):
        text = alphabet(raw).decode("ascii")
        yield text
        yield text.rstrip("=")
        for before in (1, 2):  # inside a longer text, such as user:password
            inner = alphabet(b"\0" * before + raw).decode("ascii").rstrip("=")[before + 1 : -1]
            if len(inner) >= _INNER_LEAST:
                yield inner
    for line in secret.splitlines():  # a log shows it line by line
        if len(line.strip()) >= _LINE_LEAST:
            yield line.strip()

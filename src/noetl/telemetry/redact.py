"""The one redactor: secrets are found by value, whatever form a sink gives them."""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.telemetry.cover import Cover
from noetl.telemetry.fingerprints import Fingerprints
from noetl.telemetry.forms import MASK, SHORT, forms_of

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST: Final = 256
"""Secrets that are searched for by their texts; a text costs a little for each of them."""
SINKS: Final = ("result", "log", "error")

# A literal that every match contains, so that text without it costs one search.
_PATTERNS: Final = (
    (
        "-----BEGIN",
        re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z0-9 ]*-----|\Z)"),
        MASK,
    ),
    ("eyJ", re.compile(r"\beyJ[\w-]{5,}\.eyJ[\w-]{5,}\.[\w-]*"), MASK),
    ("earer", re.compile(r"\b([Bb]earer\s+)(?=\S*[\d._~+/-]|\S{20})[\w.~+/=-]{8,}"), r"\1" + MASK),
    ("sk-", re.compile(r"\bsk-[\w-]{16,}"), MASK),
    ("ghp_", re.compile(r"\bghp_[A-Za-z0-9]{16,}"), MASK),
)


class Redactor:
    """The secrets that were handed out, and the texts and values without them."""

    def __init__(self, secrets: Iterable[str] = (), seen: Fingerprints | None = None) -> None:
        self.covered: dict[str, int] = dict.fromkeys(SINKS, 0)
        """How often something was covered, by where it would have gone."""
        self._seen = seen
        self._raw: OrderedDict[str, tuple[str, ...]] = OrderedDict()
        """Forms by secret, the last used ones; older ones are known by their fingerprints."""
        self._holders: Counter[str] = Counter()
        """How many hold a short secret, which would cover words of others."""
        self._forms: tuple[str, ...] = ()
        self._tokens: re.Pattern[str] | None = None
        self.add(*secrets)

    def add(self, *secrets: str) -> None:
        """Register secrets; from now on none of their forms passes."""
        raw, is_new = self._raw, False
        for secret in filter(None, secrets):
            if len(secret) < SHORT:
                self._holders[secret] += 1
            if secret in raw:
                raw.move_to_end(secret)
            else:
                raw[secret] = tuple(forms_of(secret))
                is_new = True
        if not is_new:
            return
        while len(raw) > MOST and self._age(raw):
            continue
        self._spell()

    def release(self, *secrets: str) -> None:
        """Whoever added them needs them no more; a short one is forgotten with its last holder."""
        gone = False
        for secret in secrets:
            if self._holders.get(secret):
                self._holders[secret] -= 1
                if not self._holders[secret]:
                    del self._holders[secret], self._raw[secret]
                    gone = True
        if gone:
            self._spell()

    def _spell(self) -> None:
        raw = self._raw
        forms = {form for known in raw.values() for form in known}
        long = (form for form in forms if len(form) >= SHORT)
        self._forms = tuple(sorted(long, key=lambda form: (-len(form), form)))
        short = sorted(re.escape(form) for form in forms if len(form) < SHORT)
        self._tokens = re.compile(rf"(?<!\w)(?:{'|'.join(short)})(?!\w)") if short else None

    def _age(self, raw: OrderedDict[str, tuple[str, ...]]) -> bool:
        """Know the secret that was not used for the longest time by its fingerprints alone.

        A short one has none, and stays; false when all are short.
        """
        oldest = next((secret for secret in raw if len(secret) >= SHORT), None)
        if oldest is None:
            return False
        del raw[oldest]
        if self._seen is None:
            self._seen = Fingerprints()
        self._seen.add(oldest)
        return True

    def redact(self, text: str) -> str:
        """The text with every secret replaced."""
        for form in self._forms:
            if form in text:
                text = text.replace(form, MASK)
        if self._tokens is not None:
            text = self._tokens.sub(MASK, text)
        for literal, pattern, mask in _PATTERNS:
            if literal in text:
                text = pattern.sub(mask, text)
        return text if self._seen is None else self._seen.masked(text)

    def cover(self) -> Cover | None:
        """What finds secrets in bytes: those that are known by their texts; none without any."""
        if not self._raw:
            return None
        return Cover(self._forms, [secret for secret in self._raw if len(secret) < SHORT])

    def within(self, text: str) -> tuple[str, ...]:
        """The secrets that a text holds, for who has to cover them elsewhere."""
        found = (secret for secret, forms in self._raw.items() if _holds(text, secret, forms))
        return (*found, *(() if self._seen is None else self._seen.within(text)))

    def redact_value(self, value: Any) -> Any:  # noqa: ANN401 - any JSON
        """The value with every secret in its texts, keys and numbers replaced."""
        if isinstance(value, str):
            return self.redact(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, (dict, list)) and self._is_clean(value):
            return value
        return self._walk(value)

    def _is_clean(self, value: Any) -> bool:  # noqa: ANN401 - any JSON
        """Whether the JSON text holds no secret, which spares the walk."""
        try:
            text = msgspec.json.encode(value).decode()
        except (TypeError, ValueError, RecursionError):
            return False
        return self.redact(text) == text

    def _walk(self, value: Any) -> Any:  # noqa: ANN401 - any JSON
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, dict):
            return {self._walk(key): self._walk(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._walk(item) for item in value]
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return MASK if str(value) in self._raw else value
        return value


def _holds(text: str, secret: str, forms: tuple[str, ...]) -> bool:
    """Whether a text holds a secret in some form; a short one as a whole word."""
    if len(secret) < SHORT:
        return re.search(rf"(?<!\w){re.escape(secret)}(?!\w)", text) is not None
    return any(form in text for form in forms)

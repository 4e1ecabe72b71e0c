"""Reads expressions of Prometheus: enough to know that one is well formed, and what it names."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

TOKEN = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*")
    |(?P<duration>\d+(?:ms|[smhdwy])(?:\d+(?:ms|[smhdw]))*|\$__rate_interval|\$__interval)
    |(?P<number>(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)
    |(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)
    |(?P<mark>=~|!~|!=|==|>=|<=|[-+*/%^<>=(){},\[\]@:])
    )""",
    re.VERBOSE,
)
AGGREGATES = {"sum", "min", "max", "avg", "count", "stddev", "group"}
WITH_NUMBER = {"topk", "bottomk", "quantile"}
# How many arguments, and whether the first or the last one is a range.
FUNCTIONS = {
    "rate": "range", "increase": "range", "irate": "range", "deriv": "range", "delta": "range",
    "min_over_time": "range", "max_over_time": "range", "avg_over_time": "range",
    "changes": "range", "resets": "range", "absent": "vector", "abs": "vector",
    "clamp_min": "vector number", "clamp_max": "vector number", "vector": "number",
    "histogram_quantile": "number vector", "time": "", "scalar": "vector", "sort_desc": "vector",
}  # fmt: skip
LEVELS = [
    {"or"}, {"and", "unless"}, {"==", "!=", "<=", "<", ">=", ">"}, {"+", "-"}, {"*", "/", "%"},
    {"^"},
]  # fmt: skip
COMPARES = LEVELS[2]


class Malformed(Exception):
    """It is not an expression."""


@dataclass
class Read:
    """What an expression names: metrics, each with the labels that are asked of it."""

    metrics: dict[str, set[str]] = field(default_factory=dict)
    grouped: set[str] = field(default_factory=set)
    """Labels that results are grouped or matched by."""


def read(text: str) -> Read:
    """The names of an expression; `Malformed` when it is none."""
    return _Reader(text).whole()


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.found = Read()
        self.tokens: list[tuple[str, str]] = []
        at = 0
        while text[at:].strip():
            match = TOKEN.match(text, at)
            if match is None:
                raise Malformed(f"{text[at : at + 20]!r} in {text!r}")
            self.tokens.append((str(match.lastgroup), match[match.lastgroup]))
            at = match.end()
        self.at = 0

    def whole(self) -> Read:
        kind = self.binary(0)
        if self.at != len(self.tokens):
            raise Malformed(f"more than an expression from {self.peek()!r} on: {self.text!r}")
        if kind == "range":
            raise Malformed(f"a range is no result: {self.text!r}")
        return self.found

    # -------------------------------------------------------------------------- tokens

    def peek(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def kind(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    def take(self, *wanted: str) -> str:
        word = self.peek()
        if not word or (wanted and word not in wanted):
            raise Malformed(f"{word!r} where {' or '.join(wanted)} should be: {self.text!r}")
        self.at += 1
        return word

    # --------------------------------------------------------------------- expressions

    def binary(self, level: int) -> str:
        if level == len(LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while self.peek() in LEVELS[level]:
            operator = self.take()
            if self.peek() == "bool":
                if operator not in COMPARES:
                    raise Malformed(f"`bool` after {operator}: {self.text!r}")
                self.take()
            self.matching()
            right = self.binary(level + 1)
            if "range" in {left, right}:
                raise Malformed(f"a range cannot be counted with: {self.text!r}")
            left = "number" if left == right == "number" else "vector"
        return left

    def matching(self) -> None:
        if self.peek() in {"on", "ignoring"}:
            self.take()
            self.labels()
            if self.peek() in {"group_left", "group_right"}:
                self.take()
                if self.peek() == "(":
                    self.labels()

    def labels(self) -> None:
        self.take("(")
        while self.peek() != ")":
            if self.kind() != "name":
                raise Malformed(f"{self.peek()!r} is no label: {self.text!r}")
            self.found.grouped.add(self.take())
            if self.peek() != ")":
                self.take(",")
        self.take(")")

    def unary(self) -> str:
        if self.peek() in {"-", "+"}:
            self.take()
        return self.primary()

    def primary(self) -> str:
        if self.peek() == "(":
            self.take()
            kind = self.binary(0)
            self.take(")")
            return kind
        if self.kind() == "number":
            self.take()
            return "number"
        if self.kind() == "name":
            return self.named()
        raise Malformed(f"{self.peek()!r} begins no expression: {self.text!r}")

    def named(self) -> str:
        name = self.take()
        if name in AGGREGATES | WITH_NUMBER:
            return self.aggregate(name)
        if self.peek() == "(":
            return self.call(name)
        return self.selector(name)

    def aggregate(self, name: str) -> str:
        is_grouped = self.peek() in {"by", "without"}
        if is_grouped:
            self.take()
            self.labels()
        self.take("(")
        if name in WITH_NUMBER:
            self.expect("number")
            self.take(",")
        self.expect("vector")
        self.take(")")
        if not is_grouped and self.peek() in {"by", "without"}:
            self.take()
            self.labels()
        return "vector"

    def call(self, name: str) -> str:
        if name not in FUNCTIONS:
            raise Malformed(f"{name} is no function: {self.text!r}")
        self.take("(")
        for place, kind in enumerate(FUNCTIONS[name].split()):
            if place:
                self.take(",")
            self.expect(kind)
        self.take(")")
        return "number" if name in {"time", "scalar"} else "vector"

    def expect(self, kind: str) -> None:
        found = self.binary(0)
        if found != kind:
            raise Malformed(f"{found} where {kind} should be: {self.text!r}")

    def selector(self, name: str) -> str:
        asked = self.found.metrics.setdefault(name, set())
        if self.peek() == "{":
            self.take()
            while self.peek() != "}":
                asked.add(self.take())
                self.take("=", "!=", "=~", "!~")
                if self.kind() != "string":
                    raise Malformed(f"{self.peek()!r} is no text: {self.text!r}")
                self.take()
                if self.peek() != "}":
                    self.take(",")
            self.take("}")
        kind = "vector"
        if self.peek() == "[":
            self.take()
            self.duration()
            self.take("]")
            kind = "range"
        if self.peek() == "offset":
            self.take()
            self.duration()
        return kind

    def duration(self) -> None:
        if self.kind() != "duration":
            raise Malformed(f"{self.peek()!r} is no duration: {self.text!r}")
        self.take()

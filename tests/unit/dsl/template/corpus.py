"""The corpus of templates and how real Jinja2 answers it; shared by the tests and the benchmark."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml
from jinja2 import StrictUndefined, TemplateError, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

from noetl.dsl.template import (
    MISSING,
    TemplateFailure,
    TemplateSyntax,
    UndefinedName,
    View,
    compile_condition,
    compile_template,
)

FOLDER = Path(__file__).resolve().parents[3] / "corpus" / "templates"
GROUPS = sorted(path.stem for path in FOLDER.glob("*.yaml"))


class PartsView(View):
    """A view over two given values."""

    def __init__(self, parts, whole):
        self.parts = parts
        self.whole = whole

    def lookup(self, key):
        return self.parts.get(key, MISSING)

    def plain(self):
        return self.whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One line of the corpus."""

    group: str
    number: int
    text: str
    is_condition: bool
    scope: dict
    expected: object
    is_same_in_jinja: bool
    why: str

    def __str__(self):
        return f"{self.group}-{self.number}"


def _build(value):
    if isinstance(value, dict):
        if "$view" in value:
            view = value["$view"]
            return PartsView(_build(view["parts"]), view["plain"])
        return {key: _build(entry) for key, entry in value.items()}
    return value


def load():
    """Return every case of the corpus."""
    cases = []
    for group in GROUPS:
        entries = yaml.safe_load((FOLDER / f"{group}.yaml").read_text(encoding="utf-8"))
        for number, entry in enumerate(entries):
            expected = ("error", entry["error"]) if "error" in entry else ("value", entry["value"])
            cases.append(
                Case(
                    group=group,
                    number=number,
                    text=entry.get("template", entry.get("condition")),
                    is_condition="condition" in entry,
                    scope=_build(entry.get("scope", {})),
                    expected=expected,
                    is_same_in_jinja=entry["jinja"] == "same",
                    why=entry.get("why", ""),
                )
            )
    return cases


def compile_case(case):
    """Compile the template or condition of a case."""
    return compile_condition(case.text) if case.is_condition else compile_template(case.text)


def answer(case):
    """Return what our engine makes of a case, in the form of its expectation."""
    try:
        return ("value", compile_case(case).render(case.scope))
    except UndefinedName as error:
        return ("error", {"code": error.code, "name": error.name})
    except (TemplateSyntax, TemplateFailure) as error:
        return ("error", {"code": error.code})


# Whatever Jinja2 and the Python code it makes raise for a wrong template.
_REFUSALS = (
    TemplateError,
    TypeError,
    ValueError,
    ArithmeticError,
    LookupError,
    NameError,
    AssertionError,
    SyntaxError,
    RecursionError,
)
ENVIRONMENT = ImmutableSandboxedEnvironment(undefined=StrictUndefined)


def data(value):
    """Return a value of Jinja2 as JSON types."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {key: data(entry) for key, entry in value.items()}
    if isinstance(value, (Undefined, bytes)):
        raise TypeError(str(value))
    return [data(entry) for entry in value]


def lone_expression(case):
    """Return the text of the one expression of a case, or None when it is mixed text."""
    text = case.text.strip()
    if case.is_condition and not text.startswith("{{"):
        return text
    try:
        is_lone = compile_case(case).is_expression
    except TemplateSyntax:
        return None
    return text[2:-2].strip("-+") if is_lone else None


def jinja_answer(case):
    """Return what Jinja2's sandbox makes of a case; errors carry no code."""
    expression = lone_expression(case)
    with warnings.catch_warnings():
        # Jinja2 decodes `\d` in a text with a deprecation warning.
        warnings.simplefilter("ignore")
        try:
            if expression is None:
                return ("value", ENVIRONMENT.from_string(case.text).render(case.scope))
            run = ENVIRONMENT.compile_expression(expression, undefined_to_none=False)
            return ("value", data(run(case.scope)))
        except _REFUSALS as error:
            return ("error", type(error).__name__)

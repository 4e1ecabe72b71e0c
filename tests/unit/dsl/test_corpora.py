"""The corpora: what earlier releases wrote parses, what is wrong is found where it is wrong."""

import re
from pathlib import Path

import jsonschema
import pytest

from noetl.dsl.kinds import KINDS
from noetl.dsl.parse import parse
from noetl.dsl.schema import kinds, schema
from noetl.dsl.yaml import load

TESTS = Path(__file__).parents[2]
COMPAT = sorted((TESTS / "compat").glob("*.yaml"))
INVALID = sorted((TESTS / "invalid").glob("*.yaml"))
EXAMPLES = sorted((TESTS.parent / "examples").rglob("*.yaml"))
_EXPECTED = re.compile(
    r"# expect: (?P<code>\S+) (?P<line>\d+):(?P<column>\d+)(?: hint~(?P<hint>\S+))?"
    r" structure=(?P<structure>yes|no)"
)


def name_of(path: Path) -> str:
    return path.stem


def validator(kind: str) -> jsonschema.Draft202012Validator:
    published = schema(kind)
    assert published is not None
    jsonschema.Draft202012Validator.check_schema(published)
    return jsonschema.Draft202012Validator(published)


@pytest.fixture(scope="module")
def validators() -> dict[str, jsonschema.Draft202012Validator]:
    made = {kind.lower(): validator(kind) for kind in kinds()}
    return made | {"agent": made["playbook"]}


def test_the_corpora_are_as_large_as_promised() -> None:
    assert (len(COMPAT) >= 60, len(INVALID) >= 80, len(EXAMPLES) >= 12) == (True, True, True)


@pytest.mark.parametrize("path", COMPAT, ids=name_of)
def test_a_playbook_of_an_earlier_release_parses_with_the_warnings_it_deserves(path: Path) -> None:
    text = path.read_bytes()
    expected = re.search(rb"# expect-warnings: (.*)", text)
    assert expected is not None
    listed = {word.strip() for word in expected[1].decode().split(",")} - {"none"}
    parsed = parse(text)
    assert [item.as_json() for item in parsed.errors] == []
    assert {item.code for item in parsed.warnings} == listed
    assert parsed.model is not None


@pytest.mark.parametrize("path", EXAMPLES, ids=name_of)
def test_an_example_has_neither_error_nor_warning(path: Path) -> None:
    assert [item.as_json() for item in parse(path.read_bytes()).diagnostics] == []


@pytest.mark.parametrize("path", INVALID, ids=name_of)
def test_a_wrong_document_has_one_error_at_its_place_with_a_remedy(path: Path) -> None:
    text = path.read_bytes()
    expected = _EXPECTED.search(text.decode("utf-8", "replace"))
    assert expected is not None
    parsed = parse(text)
    places = [(item.code, item.span.line, item.span.column) for item in parsed.errors]
    assert places == [(expected["code"], int(expected["line"]), int(expected["column"]))]
    assert parsed.model is None
    error = parsed.errors[0]
    assert error.hint
    if expected["hint"]:
        wanted = re.escape(expected["hint"]).replace("_", "[ _]")
        assert re.search(wanted, f"{error.message} {error.hint}", re.IGNORECASE)


def test_every_error_code_of_the_language_has_a_wrong_document() -> None:
    from noetl.dsl.codes import CODES, severity_of  # noqa: PLC0415 - only this test needs it

    covered = {m["code"] for path in INVALID
               if (m := _EXPECTED.search(path.read_text("utf-8", "replace")))}  # fmt: skip
    made_in_code = {"DSL010", "DSL011", "DSL043", "DSL054"}
    errors = {code for code in CODES if severity_of(code) == "error"}
    assert errors - covered - made_in_code == set()


def of_kind(root: object) -> str:
    word = root.get("kind") if isinstance(root, dict) else None
    return word.lower() if isinstance(word, str) else ""


@pytest.mark.parametrize("path", COMPAT + EXAMPLES, ids=name_of)
def test_the_schema_accepts_what_the_parser_accepts(
    path: Path, validators: dict[str, jsonschema.Draft202012Validator]
) -> None:
    root = load(path.read_bytes()).root
    assert [fault.message for fault in validators[of_kind(root)].iter_errors(root)] == []


@pytest.mark.parametrize("path", INVALID, ids=name_of)
def test_the_schema_refuses_exactly_what_is_wrong_by_structure(
    path: Path, validators: dict[str, jsonschema.Draft202012Validator]
) -> None:
    text = path.read_bytes()
    expected = _EXPECTED.search(text.decode("utf-8", "replace"))
    root = load(text).root
    assert expected is not None
    if root is None or of_kind(root) not in KINDS:
        return  # an editor has no schema for a text without a known kind
    refused = not validators[of_kind(root)].is_valid(root)
    assert refused == (expected["structure"] == "yes")

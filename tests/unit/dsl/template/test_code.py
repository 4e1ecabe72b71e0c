"""Expressions inside source code."""

import pytest

from noetl.dsl.template import (
    CODE_SOURCE_LIMIT,
    LimitExceeded,
    TemplateSyntax,
    UndefinedName,
    compile_code,
)


def found(text):
    return [(one.start, one.end, one.first_name) for one in compile_code(text).expressions]


def test_an_f_string_stays_when_its_name_is_not_in_scope():
    code = compile_code('f"{{x}}"')
    assert code.render({"y": 1}) == 'f"{{x}}"'
    assert code.render({"x": 1}) == 'f"1"'


def test_an_expression_is_rendered_when_its_first_name_is_in_scope():
    code = compile_code("n = {{ workload.n }}  # {{ other }}")
    assert code.render({"workload": {"n": 3}}) == "n = 3  # {{ other }}"


def test_text_that_is_no_expression_stays():
    text = "{% if x %} {# c #} {{{x}}} {{ 7*7 }} {{ x y }} {{ x | nope }} {{ 'a' }} {{ x"
    code = compile_code(text)
    assert (code.expressions, code.render({"x": 1})) == ((), text)


def test_the_first_name_is_the_first_in_the_text():
    assert found("{{ a if b else c }} {{ range(n) }} {{ -z + y }}") == [
        (0, 19, "a"),
        (20, 34, "range"),
        (35, 47, "z"),
    ]


def test_a_failure_has_its_place_in_the_source():
    with pytest.raises(UndefinedName) as caught:
        compile_code("x = 1\ny = {{ a.b }}").render({"a": {}})
    assert (caught.value.offset, str(caught.value)) == (14, "`a.b` is undefined (at 2:9)")


def test_a_value_that_cannot_be_printed_has_its_place_in_the_source():
    with pytest.raises(Exception, match=r"\(at 1:3\)"):
        compile_code("x {{ a }}").render({"a": object()})


def test_the_output_of_code_is_bounded():
    with pytest.raises(LimitExceeded):
        compile_code("{{ a }}{{ a }}").render({"a": "x" * 5_000_000})


def test_a_source_that_is_too_long_is_refused():
    with pytest.raises(TemplateSyntax):
        compile_code("x" * (CODE_SOURCE_LIMIT + 1))


def test_many_open_braces_are_read_in_linear_time():
    text = "{{ a " * 100_000
    assert compile_code(text).render({"a": 1}) == text

"""Compiling, rendering, conditions and the names that templates read."""

from types import MappingProxyType

import pytest

from noetl.dsl.template import (
    CODE_SOURCE_LIMIT,
    FILTERS,
    MISSING,
    PREDICATES,
    SOURCE_LIMIT,
    LimitExceeded,
    Read,
    TemplateFailure,
    TemplateSyntax,
    UndefinedName,
    View,
    compilations,
    compile_condition,
    compile_template,
    is_template,
    is_true,
    read_sites,
    reads,
    render,
)
from noetl.errors import NoetlError


def test_only_marked_texts_are_templates():
    texts = ["{{ a }}", "{% a %}", "{# a #}", "{ a }", "a", "", "{'a': 1}"]
    assert [is_template(text) for text in texts] == [True, True, True, False, False, False, False]


def test_a_literal_is_returned_untouched():
    for text in ("007", "1e5", "true", "[1]", "{...}", "", "a\n"):
        template = compile_template(text)
        assert (template.is_literal, template.is_expression, template.render({})) == (
            True,
            False,
            text,
        )


def test_a_lone_expression_with_blanks_around_it_is_native():
    template = compile_template(" {{ a }}\n")
    assert (template.is_literal, template.is_expression, template.render({"a": [1]})) == (
        False,
        True,
        [1],
    )


def test_blanks_around_any_lone_expression_are_dropped():
    assert compile_template(" {{ a + 1 }}\n").render({"a": 1}) == 2


def test_two_expressions_render_to_text():
    template = compile_template("{{ a }}{{ a }}")
    assert (template.is_expression, template.render({"a": 1})) == (False, "11")


def test_a_template_shows_its_text():
    assert repr(compile_template("{{ a }}")) == "Template('{{ a }}')"


def test_render_goes_into_maps_keys_and_lists_once():
    value = {"{{ k }}": ["{{ n }}", {"x": "n={{ n }}"}, 1, None, ("{{ data }}",)], 5: "{{ n }}"}
    scope = {"k": "key", "n": 3, "data": "{{ 7*7 }}"}
    assert render(value, scope) == {"key": [3, {"x": "n=3"}, 1, None, ["{{ 7*7 }}"]], 5: 3}


def test_a_key_must_render_to_text():
    with pytest.raises(TemplateFailure, match="must render to text, not int"):
        render({"{{ 1 }}": 2}, {})


def test_two_keys_may_not_render_to_the_same_text():
    with pytest.raises(TemplateFailure, match="two keys of a map render to `a`"):
        render({"a": 1, "{{ 'a' }}": 2}, {})


def test_a_value_that_is_nested_too_deeply_is_refused():
    value: object = "x"
    for _ in range(300):
        value = [value]
    with pytest.raises(LimitExceeded):
        render(value, {})


@pytest.mark.parametrize(
    "text",
    ["9" * 5000, "-" + "9" * 5000, " +1_" + "0" * 5000, "\u0669" * 5000, "0" * 9 + "9" * 5000],
)
def test_more_digits_than_a_number_has_are_a_limit_and_never_the_default(text):
    with pytest.raises(LimitExceeded, match="too many digits") as caught:
        render("{{ text | int(7) }}", {"text": text})
    assert caught.value.code == "template_limit"


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("('0' * 5000 ~ '12') | int", 12),
        ("('x' * 5000) | int", 0),
        ("('9' * 5000 ~ 'x') | int(5)", 5),
        ("'x' | int(3)", 3),
        ("('z' * 5000) | int(4, 10)", 4),
        ("('9' * 5000) | int(4, 99)", 4),
    ],
)
def test_a_text_that_is_no_number_is_the_default_however_long_it_is(expression, value):
    assert render("{{ " + expression + " }}", {}) == value


@pytest.mark.parametrize("base", [0, 7, 36])
def test_the_limit_of_digits_holds_in_every_base(base):
    with pytest.raises(LimitExceeded):
        render("{{ ('6' * 5000) | int(1, base) }}", {"base": base})


def test_a_text_is_compiled_once():
    text = "{{ compiled_once + 1 }}"
    before = compilations()
    first = compile_template(text)
    assert [compile_template(text) for _ in range(3)] == [first] * 3
    assert compile_condition(text) is first
    assert compilations() == before + 1
    assert compile_condition("compiled_once") is compile_condition("compiled_once")
    assert compilations() == before + 2


def test_a_condition_is_a_template_or_a_bare_expression():
    scope = {"a": 1, "b": None}
    conditions = ["a == 1", "{{ a == 1 }}", "a", "b", "true", "a == 1 and not b", "a,"]
    values = [compile_condition(text).evaluate(scope) for text in conditions]
    assert values == [True, True, 1, None, True, True, [1]]


def test_an_empty_condition_is_a_mistake():
    with pytest.raises(TemplateSyntax):
        compile_condition("  ")


def test_the_truth_of_conditions_knows_words():
    false = [False, None, 0, 0.0, "", [], {}, "false", "No", "OFF", "none", "Null", "0", " false\n"]
    true = [True, 1, "x", "true", "yes", [0], {"a": 0}, "00", "[]"]
    assert [is_true(value) for value in false] == [False] * len(false)
    assert [is_true(value) for value in true] == [True] * len(true)


class Constant(View):
    def __init__(self, value):
        self.value = value

    def lookup(self, key):
        return {"whole": self.value}.get(key, MISSING)

    def plain(self):
        return self.value


def test_the_truth_of_a_view_is_that_of_its_data():
    assert [is_true(Constant("no")), is_true(Constant([1]))] == [False, True]


def test_reads_are_paths_as_far_as_they_are_written_out():
    expected = {
        "{{ ctx.a.b }}": {("ctx", "a", "b")},
        "{{ steps['x'].y }}": {("steps", "x", "y")},
        "{{ rows[0].x }}": {("rows",)},
        "{{ m[k.i] }}": {("m",), ("k", "i")},
        "{{ a.b.get('x') }}": {("a", "b")},
        "{{ a | default(b) }}": {("a",), ("b",)},
        "{{ range(n) }}": {("n",)},
        "{{ [1, 'x'] }}": set(),
        "{{ a.x[1:n] }}": {("a", "x"), ("n",)},
        "{{ f(a)[0] if false else [a][b] }}".replace("f(a)", "dict(x=a)"): {("a",), ("b",)},
        "plain": set(),
    }
    assert {text: set(reads(compile_template(text))) for text in expected} == expected


def test_locals_are_not_reads_unless_they_may_be_unset():
    expected = {
        "{% for r in rows if r.ok %}{{ r.x }}{{ loop.index }}{% endfor %}": {("rows",)},
        "{% set x = ctx.a %}{{ x.b }}": {("ctx", "a")},
        "{{ x }}{% set x = 1 %}{{ x }}": {("x",)},
        "{% if c %}{% set x = 1 %}{% endif %}{{ x }}": {("c",), ("x",)},
        "{% if c %}{% set x = 1 %}{% else %}{% set x = 2 %}{% endif %}{{ x }}": {("c",)},
        "{% with a = b %}{{ a }}{% endwith %}{{ a }}": {("b",), ("a",)},
        "{% set t %}{{ a }}{% endset %}{{ t }}": {("a",)},
        "{% filter upper %}{{ a }}{% endfilter %}": {("a",)},
        "{% for a, b in l %}{% set c = a %}{{ c }}{% endfor %}{{ c }}": {("l",), ("c",)},
    }
    assert {text: set(reads(compile_template(text))) for text in expected} == expected


def test_read_sites_tell_the_place_and_what_may_be_missing():
    template = compile_template("{{ a.b | default(c) }}{{ d is defined }}{{ e[0] }}")
    assert read_sites(template) == (
        Read(path=("a", "b"), offset=3, is_lenient=True, is_exact=True),
        Read(path=("c",), offset=17, is_lenient=False, is_exact=True),
        Read(path=("d",), offset=25, is_lenient=True, is_exact=True),
        Read(path=("e",), offset=43, is_lenient=False, is_exact=False),
    )


def test_an_undefined_name_has_its_place_in_the_text():
    with pytest.raises(UndefinedName) as caught:
        compile_template("a\n  {{ x.y.z }}").render({"x": {}})
    error = caught.value
    assert (error.code, error.name, error.offset, str(error)) == (
        "template_undefined",
        "x.y",
        8,
        "`x.y` is undefined (at 2:7)",
    )


def test_an_operation_that_fails_has_its_place_in_the_text():
    places = {
        "{{ 1 + 'a' }}": "1:6",
        "{{ 'a' | round }}": "1:10",
        "{{ x.append(1) }}": "1:5",
        "{{ 'a'.split('') }}": "1:13",
        "{{ x[1:'a'] }}": "1:6",
        "{{ 1 if 1 < 'a' }}": "1:11",
        "{{ -'a' }}": "1:4",
        "{{ 1 ~ y }}": "1:6",
        "z{{ y }}": "1:2",
        "{% if 1 %}{{ y }}{% endif %}": "1:11",
        "{% for i in 1 %}{% endfor %}": "1:13",
        "{{ 'a'._b }}": "1:7",
        "{{ 'a'[k] }}": "1:7",
        "{{ y }}!": "1:1",
    }
    scope = {"x": [1], "y": object(), "k": "__class__"}
    found = {}
    for text in places:
        with pytest.raises(TemplateFailure) as caught:
            compile_template(text).render(scope)
        found[text] = str(caught.value).rpartition("(at ")[2].rstrip(")")
    assert found == places


def test_a_syntax_error_has_code_offset_place_and_hint():
    with pytest.raises(TemplateSyntax) as caught:
        compile_template("ab {{ x | uper }}")
    error = caught.value
    assert (error.code, error.offset, str(error), error.hint) == (
        "DSL040",
        10,
        "unknown filter `uper` (at 1:11)",
        "did you mean `upper`?",
    )


def test_an_unknown_name_without_a_near_one_has_no_hint():
    with pytest.raises(TemplateSyntax) as caught:
        compile_template("{{ x is qqqqqqqq }}")
    assert (caught.value.code, caught.value.hint) == ("DSL040", "")


def test_a_refused_filter_says_what_to_do_instead():
    with pytest.raises(TemplateSyntax) as caught:
        compile_template("{{ x | random }}")
    assert caught.value.hint == "a template gives the same value each time; choose in a tool"


def test_adding_a_number_to_text_hints_at_the_tilde():
    with pytest.raises(TemplateFailure) as caught:
        compile_template("{{ 'a' + 1 }}").render({})
    assert caught.value.hint == "join texts with `~`"


def test_template_errors_are_errors_of_noetl():
    for kind in (TemplateSyntax, TemplateFailure, UndefinedName, LimitExceeded):
        assert issubclass(kind, NoetlError)
        assert (kind.status, kind.retryable) == (422, False)


def test_a_source_that_is_too_long_is_refused():
    compile_template("x" * SOURCE_LIMIT)
    compile_template("x" * CODE_SOURCE_LIMIT, source_limit=CODE_SOURCE_LIMIT)
    for text in ("x" * (SOURCE_LIMIT + 1), "ü" * (SOURCE_LIMIT // 2 + 1)):
        with pytest.raises(TemplateSyntax) as caught:
            compile_template(text)
        assert caught.value.code == "DSL043"
    with pytest.raises(TemplateSyntax):
        compile_condition("1 " * SOURCE_LIMIT)


def test_exceptions_of_a_view_reach_the_caller():
    class Need(Exception):
        pass

    class Far(View):
        def lookup(self, key):
            raise Need(key)

        def plain(self):
            raise Need

    for text in ("{{ s.x }}", "{{ s }}", "{{ s | upper }}", "{{ s.x | default(1) }}", "a{{ s }}"):
        with pytest.raises(Need):
            compile_template(text).render({"s": Far()})


def test_values_of_other_types_cannot_be_printed():
    for text in ("x{{ a }}", "{{ [a] | tojson }}", "{{ a ~ 1 }}"):
        with pytest.raises(TemplateFailure):
            compile_template(text).render({"a": object()})
    with pytest.raises(TemplateFailure, match="not a finite number"):
        compile_template("x{{ a }}").render({"a": float("nan")})


def test_other_kinds_of_maps_lists_and_texts_are_read_as_data():
    class Word(str):
        __slots__ = ()

    proxy = MappingProxyType({"x": 1, "y": MappingProxyType({"z": (1, 2)})})
    scope = {"m": proxy, "t": (1, 2), "w": Word("hi"), "l": [proxy]}
    texts = {
        "{{ m.x }}": 1,
        "{{ m['y'].z[1] }}": 2,
        "{{ m.nope | default(0) }}": 0,
        "!{{ m }}": '!{"x":1,"y":{"z":[1,2]}}',
        "{{ t | tojson }}": "[1,2]",
        "{{ t + [3] }}": [1, 2, 3],
        "{{ t * 2 }}": [1, 2, 1, 2],
        "{{ t | list }}": [1, 2],
        "{{ t[0] }}": 1,
        "{{ t[:1] }}": [1],
        "{{ 'x' in m }}": True,
        "{{ w ~ '!' }}": "hi!",
        "{{ l == l }}": True,
        "{{ w is string }}": True,
    }
    assert {text: compile_template(text).render(scope) for text in texts} == texts


def test_text_that_holds_half_a_character_cannot_be_encoded():
    for text in ("{{ a | sha256 }}", "{{ a | b64encode }}", "{{ a | urlencode }}"):
        with pytest.raises(TemplateFailure, match="half a character"):
            compile_template(text).render({"a": "\ud800"})


def test_tables_name_the_filters_and_tests():
    assert {"default", "upper", "sql_literal", "regex_match"} <= set(FILTERS)
    assert {"attr", "random"}.isdisjoint(FILTERS)
    assert {"defined", "even", "==", "filter"} <= set(PREDICATES)


def test_fuel_is_counted_the_same_each_time():
    template = compile_template("{% for i in l %}{{ i | upper }}{% endfor %}{{ l | sort | join }}")
    scope = {"l": ["b", "a", "c"]}
    assert [template.measure(scope) for _ in range(3)] == [("BACabc", 20)] * 3

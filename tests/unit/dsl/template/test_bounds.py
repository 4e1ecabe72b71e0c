"""Work and memory are paid for before they are used, whatever a template asks for."""

import tracemalloc

import pytest

from noetl.dsl.template import (
    CODE_SOURCE_LIMIT,
    LimitExceeded,
    TemplateFailure,
    TemplateSyntax,
    UndefinedName,
    View,
    compile_code,
    compile_condition,
    compile_template,
    pattern_fault,
)
from noetl.dsl.template.limits import ITEM_TOTAL, TEXT_TOTAL, Meter, count_lines
from noetl.dsl.template.template import caches

BIG = "'x' * 8000000"
DOUBLED = "{% set ns = namespace(x=[1]) %}{% for i in range(40) %}{% set ns.x = [ns.x, ns.x] %}"
DEEP = "{% set ns = namespace(x=[1]) %}{% for i in range(50000) %}{% set ns.x = [ns.x] %}"
COLLIDING = "[" + ",".join(str(i * (2**61 - 1)) for i in range(1, 60_000)) + "]"
COLLIDING_KEYS = ", ".join(f"{i * (2**61 - 1)}: 1" for i in range(1, 66))

MEMORY = {
    "sort of one large text": "{{ ([s] * 100000) | sort }}",
    "sort of large texts by case": "{{ ([s] * 100000) | sort(case_sensitive=true) }}",
    "unique of one large text": "{{ ([s] * 100000) | unique }}",
    "max of one large text": "{{ ([s] * 100000) | max }}",
    "groupby of one large text": "{{ ([{'a': s}] * 100000) | groupby('a') }}",
    "indent with other line ends": r"{{ ('\r' * 2000) | indent('x' * 1000000, false, true) }}",
    "precision with zeros": "{{ '%.0000000001500000000d' % 5 }}",
    "width with zeros": "{{ '{:00000000001500000000}'.format(5) }}",
    "width of six digits": "{{ '{:100000}'.format(5) }}",
    "indented JSON": "{{ range(100000) | list | tojson(10000) }}",
    "deeply indented JSON": "{% set ns = namespace(x=[0] * 9000) %}{% for i in range(200) %}"
    "{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | tojson(16) }}",
    "indented JSON that grows": "{{ [['\x01' * 100] * 90] * 90 | tojson(16) }}".replace(
        "* 90 | tojson", "* 160) | tojson"
    ).replace("[['", "([['"),
    "texts kept in a list": "{% set ns = namespace(l=[]) %}{% for i in range(20) %}"
    "{% set ns.l = ns.l + ['😀' * 8000000] %}{% endfor %}",
    "many ranges": "{{ [" + "range(100000), " * 30 + "] | length }}",
    "list of a text": "{{ ('€' * 8000000) | list }}",
    "loop over a text": "{% for c in '€' * 8000000 %}{% endfor %}",
    "splitlines": r"{{ ('\n' * 8000000).splitlines() }}",
    "split": "{{ ('€ ' * 3000000).split() }}",
    "fields of format": "{{ ('{0}' * 2000000).format(1) }}",
    "urlencode": "{{ ('€' * 8000000) | urlencode }}",
    "urlencode that grows": "{{ ('€' * 1500000) | urlencode }}",
    "title": "{{ ('€ ' * 3800000) | title }}",
    "JSON of many maps": "{{ ('[' ~ '{},' * 2600000 ~ '{}]') | fromjson }}",
    "list of lists": "{{ [[0] * 400000] * 400000 }}",
    "list of maps of lists": "{{ [{'a': [0] * 400000}] * 400000 }}",
    "list of large texts": f"{{{{ [{BIG}] * 100 }}}}",
    "deep result": DEEP + "{% endfor %}{% set y %}{{ ns.x }}{% endset %}",
    "base64 that grows": "{{ ('€' * 3000000) | b64encode }}",
    "SQL literal that grows": '{{ ("\'" * 8000000) | sql_literal }}',
}
TIME = {
    "changed on doubled trees": DOUBLED + "{{ loop.changed(ns.x) }}{% endfor %}",
    "changed on deep lists": DEEP + "{{ loop.changed(ns.x) }}{% endfor %}",
    "a large body": "{% for i in range(100) %}{% set x = 1" + "+1" * 30_000 + " %}{% endfor %}",
    "a large list in a loop": "{% for i in range(100) %}{% set x = [1"
    + ",1" * 30_000
    + "] %}{% endfor %}",
    "a large condition of a loop": "{% for i in range(100) if 1"
    + "+1" * 30_000
    + " %}{% endfor %}",
    "many large patterns": "{% for i in range(1000) %}"
    "{{ 'a' | regex_match('(?:[a-z]{1,9}x?){1,20}' * 10 ~ i) }}{% endfor %}",
    "a pattern on long texts": "{% for i in range(4) %}"
    "{{ ('a' * 65000) | regex_match('(?:a|b)*a(?:a|b){900}c') }}{% endfor %}",
    "groups of a replacement": "{{ ('a' * 65000) | regex_replace('(a*)' * 200 ~ '$', '') }}",
    "characters to strip": "{{ ('a' * 400000).strip('b' * 400000 ~ 'a') }}",
    "characters to trim": "{{ ('a' * 400000) | trim('b' * 400000 ~ 'a') }}",
    "rfind": "{{ ('a' * 400000).rfind('b' ~ 'a' * 20000) }}",
    "rsplit": "{{ ('a' * 400000).rsplit('b' ~ 'a' * 20000) }}",
    "rpartition": "{{ ('a' * 400000).rpartition('b' ~ 'a' * 20000) }}",
    "wordwrap": "{{ ('a' * 300000) | wordwrap(1) }}",
    "wordwrap of hyphens": "{{ ('a' ~ '-' * 300000) | wordwrap(300000) }}",
    "texts of one length in a list": "{{ (s ~ 'a') in [s ~ 'b'] * 900000 }}",
    "equal texts": "{% for i in range(90000) %}{{ s == t }}{% endfor %}",
    "ordered texts": "{% for i in range(90000) %}{{ s < t }}{% endfor %}",
    "the same texts": "{% for i in range(90000) %}{{ s is sameas t }}{% endfor %}",
    "key of a map": "{% for i in range(90000) %}{{ s in m }}{% endfor %}",
    "bool": "{% for i in range(90000) %}{{ s | bool }}{% endfor %}",
    "is lower": "{% for i in range(90000) %}{{ s is lower }}{% endfor %}",
    "is upper": "{% for i in range(90000) %}{{ s is upper }}{% endfor %}",
    "isdigit": "{% for i in range(90000) %}{{ s.isdigit() }}{% endfor %}",
    "int": "{% for i in range(90000) %}{{ s | int }}{% endfor %}",
    "float": "{% for i in range(90000) %}{{ s | float }}{% endfor %}",
    "filesizeformat": "{% for i in range(90000) %}{{ n | filesizeformat }}{% endfor %}",
    "startswith many": "{% for i in range(9) %}{{ 'a'.startswith(['b'] * 900000) }}{% endfor %}",
    "startswith long": "{{ (s ~ 'a').startswith([s ~ 'b'] * 900000) }}",
    "changes of a namespace that is used": "{% set ns = namespace(m) %}{% for i in range(90000) %}"
    "{% if ns | length %}{% set ns.y = i %}{% endif %}{% endfor %}",
    "sort by many attributes": "{{ [{}] | sort(attribute='a,' * 30) }}",
    "a long attribute": "{{ [{}] | map(attribute='a.' * 300) | list }}",
    "a map with keys of one hash": "{{ {" + COLLIDING_KEYS + "} }}",
}
SCOPE = {
    "s": "x" * 8_000_000,
    "t": "".join(["x" * 7_999_999, "y"]),
    "n": "0" * 8_000_000,
    "m": {f"k{i}": i for i in range(100_000)},
}


@pytest.mark.parametrize("name", MEMORY)
def test_memory_is_bounded_before_it_is_used(name):
    with pytest.raises(LimitExceeded):
        compile_template(MEMORY[name]).render(SCOPE)


@pytest.mark.parametrize("name", TIME)
def test_time_is_bounded_by_what_was_asked_for(name):
    with pytest.raises(LimitExceeded):
        compile_template(TIME[name]).render(SCOPE)


def test_nothing_large_is_built_before_it_is_checked():
    texts = [
        "{{ u | list }}",
        "{% for c in u %}{% endfor %}",
        "{{ (u ~ '').splitlines() }}",
        "{{ u | title }}",
        "{{ u | urlencode }}",
        "{{ j | fromjson }}",
    ]
    scope = {"u": "€\n" * 3_800_000, "j": "[" + "{}," * 2_600_000 + "{}]"}
    templates = [compile_template(text) for text in texts]
    tracemalloc.start()
    try:
        for template in templates:
            with pytest.raises(LimitExceeded):
                template.render(scope)
        assert tracemalloc.get_traced_memory()[1] < 100_000_000
    finally:
        tracemalloc.stop()


def test_results_that_are_no_enormous_trees_are_returned():
    assert compile_template("{{ [[0] * 1000] * 1000 }}").render({}) == [[0] * 1000] * 1000
    assert compile_template("{{ [a, 1] }}").render({"a": {"b": (1, "x")}}) == [{"b": (1, "x")}, 1]


def test_a_large_value_of_the_scope_is_returned_as_it_is():
    value = [[0] * 2000] * 2000
    assert compile_template("{{ a | default([]) }}").render({"a": value}) is value


def test_numbers_of_one_hash_are_told_apart_in_time():
    found = compile_template(
        "{{ (a | fromjson + [9]) | unique | length }}".replace("| from", "|from")
    )
    assert found.render({"a": COLLIDING}) == 60_000
    one = compile_template("{{ [2 ** 70, 2.0 ** 70, -(2 ** 70), 1, 1.0, true] | unique }}")
    assert one.render({}) == [2**70, -(2**70), 1]


def test_a_map_may_have_some_huge_numbers_as_keys():
    assert compile_template("{{ {2 ** 62: 1, 2: 3} }}").render({}) == {2**62: 1, 2: 3}


def test_a_path_of_many_parts_is_refused():
    for text in ("{{ a" + ".b" * 30_000 + " }}", "{{ a" + "[0]" * 20_000 + " }}"):
        with pytest.raises(TemplateSyntax, match="more than 256 parts"):
            compile_template(text)
    assert compile_template("{{ a" + ".b" * 256 + " | default(1) }}").render({"a": {}}) == 1


def test_what_is_not_a_function_is_named_by_its_last_parts():
    with pytest.raises(TemplateSyntax, match=r"`a(\[0\]){20}` is not a function"):
        compile_template("{{ a" + "[0]" * 20 + "() }}")
    for part, count in (("[0]", 20_000), ("['" + "k" * 200 + "']", 250), ("[0].k()", 5_000)):
        with pytest.raises(TemplateSyntax) as caught:
            compile_template("{{ (a" + part * count + "[0])() }}")
        assert len(caught.value.reason) < 4_000


def test_a_missing_part_is_named_with_what_stands_before_it():
    names = {
        "{{ a.b[0].c }}": "a.b[0]",
        "{{ [a][0].b[0] }}": "(...)[0].b[0]",
        "{{ a[k] }}": "a['" + "k" * 80 + "']",
        "{{ a[1 + 1] }}": "a[2]",
        "{{ a[1.5] }}": "a[1.5]",
        "{{ a[none] }}": "a[...]",
    }
    found = {}
    for text in names:
        with pytest.raises(UndefinedName) as caught:
            compile_template(text).render({"a": {"b": []}, "k": "k" * 200})
        found[text] = caught.value.name
    assert found == {**names, "{{ a[1.5] }}": "a[...]"}


def test_the_caches_of_templates_hold_a_bounded_amount_of_source():
    kept = sum(size * cache.cache_info().maxsize for size, cache in caches())
    assert kept <= 10 * 1024 * 1024
    text = "{{ a }}" + "x" * 500
    assert compile_template(text) is compile_template(text)
    long_condition = "a == '" + "x" * 500 + "'"
    assert compile_condition(long_condition) is compile_condition(long_condition)


def test_all_expressions_of_a_source_share_one_meter():
    code = compile_code("{{ range(100000) | sort | length }}\n" * 50)
    with pytest.raises(LimitExceeded) as caught:
        code.render({"range": 1})
    assert caught.value.offset > 30


def test_the_expressions_of_a_source_are_bounded():
    assert len(compile_code("{{ a }} " * 1_000).expressions) == 1_000
    with pytest.raises(TemplateSyntax) as caught:
        compile_code("{{ a }} " * 1_001)
    assert caught.value.code == "DSL043"


def test_nothing_repeated_is_nothing():
    texts = ["{{ '' * 10**30 }}", "{{ [] * 10**30 }}", "{{ 10**30 * '' }}", "{{ 'a' * -(10**30) }}"]
    assert [compile_template(text).render({}) for text in texts] == ["", [], "", ""]


def test_a_rounded_number_is_finite():
    with pytest.raises(TemplateFailure, match="not a finite number"):
        compile_template("{{ 1.7976931348623157e308 | round(-300, 'ceil') }}").render({})


def test_json_with_half_a_character_is_refused():
    template = compile_template("{{ a | fromjson }}")
    for text in ('"\\ud800"', '"\\uDC00"', '"\\ud83d\\ud83d\\ude00"', '"\\ude00\\ud83d"'):
        with pytest.raises(TemplateFailure, match="half a character"):
            template.render({"a": text})
    assert template.render({"a": '"\\ud83d\\ude00 \\\\ud800 \\u00e9 \\n"'}) == "😀 \\ud800 é \n"


def test_values_of_format_may_have_any_name():
    names = {
        "{{ '%(value)s %(meter)s' | format(value=1, meter=2) }}": "1 2",
        "{{ '{text} {meter}'.format(text=1, meter=2) }}": "1 2",
        "{{ ['%(value)s'] | map('format', value=3) | list }}": ["3"],
        "{{ dict({'a': 1}, values=2) }}": {"a": 1, "values": 2},
    }
    assert {text: compile_template(text).render({}) for text in names} == names


def test_a_fault_of_a_pattern_is_told():
    assert pattern_fault("(a)[b-z]+") is None
    assert "the pattern is wrong" in pattern_fault("(")
    assert "longer than" in pattern_fault("a" * 5_000)


def test_numbers_are_floats_without_being_read():
    assert repr(compile_template("{{ [3 | float, true | float] }}").render({})) == "[3.0, 1.0]"


def test_a_field_of_format_that_is_not_closed_fails():
    with pytest.raises(TemplateFailure, match="`format`"):
        compile_template("{{ '{} {'.format(1) }}").render({})


def test_a_namespace_keeps_what_was_read_from_it():
    text = (
        "{% set ns = namespace(a=1) %}{% set l = [ns] %}{% set ns.a = 2 %}"
        "{{ l }}{{ ns }}{% if ns %}!{% endif %}{% if namespace() %}?{% endif %}"
    )
    assert compile_template(text).render({}) == '[{"a":1}]{"a":2}!'


def test_the_truth_of_a_view_is_that_of_its_whole():
    class Whole(View):
        def lookup(self, key):
            return key

        def plain(self):
            return []

    assert compile_template("{{ 1 if v else 2 }}").render({"v": Whole()}) == 2


def test_an_indented_value_that_is_no_json_fails():
    with pytest.raises(TemplateFailure, match="not JSON"):
        compile_template("{{ [a] | tojson(2) }}").render({"a": object()})


def test_what_runs_out_of_memory_or_nesting_is_a_limit():
    for error in (MemoryError, RecursionError):

        class Broken(View):
            def lookup(self, key):
                raise NotImplementedError(key)

            def plain(self, error=error):
                raise error

        with pytest.raises(LimitExceeded, match="too much memory or nesting"):
            compile_template("{{ a }}").render({"a": Broken()})


def test_lines_are_counted_as_they_are_split():
    for text in ("", "a", "a\n", "a\r\nb", "\r\r\n\n", "a\vb\fc\x1cd\x85e\u2028f"):
        lines = len(text.splitlines())
        assert lines <= count_lines(text) <= lines + 1


def test_a_date_is_read_from_a_short_text_only():
    template = compile_template("{{ a | todatetime }}")
    assert template.render({"a": " 2024-01-02 "}) == "2024-01-02T00:00:00Z"
    with pytest.raises(TemplateFailure, match="not a date and time"):
        template.render({"a": "2024-01-02" + "x" * 8_000_000})


def test_the_totals_of_a_meter_are_bounded():
    meter = Meter()
    for _ in range(TEXT_TOTAL // 8_000_000):
        meter.length(8_000_000)
    with pytest.raises(LimitExceeded, match="characters"):
        meter.length(8_000_000)
    meter.hold(ITEM_TOTAL)
    with pytest.raises(LimitExceeded, match="items"):
        meter.hold(1)


@pytest.mark.parametrize("digits", ["9" * 4_301, "9" * 100_000, "0x" + "f" * 20_000])
def test_a_number_with_too_many_digits_is_a_fault_of_the_template(digits):
    with pytest.raises(TemplateSyntax, match="too large"):
        compile_template("{{ " + digits + " }}", source_limit=CODE_SOURCE_LIMIT)

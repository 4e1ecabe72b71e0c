"""Whatever the text and the scope, only template errors come out."""

from hypothesis import given, settings
from hypothesis import strategies as st

from noetl.dsl.template import (
    FILTERS,
    PREDICATES,
    TemplateFailure,
    TemplateSyntax,
    compile_code,
    compile_condition,
    compile_template,
)
from noetl.dsl.template.limits import FUEL_LIMIT, TEXT_LIMIT

NAMES = st.sampled_from(["a", "b", "c", "d", "loop", "x"])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**6), 10**6),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
SCOPES = st.dictionaries(NAMES, VALUES, max_size=5)
PIECES = st.sampled_from(
    [
        *"abcdx0129.,:|~+-*/%()[]{}'\"= <>!",
        *["{{ ", " }}", "{% ", " %}", "{# ", " #}", "{%- ", "-}}", "**", "//", "==", "is ", "not "],
        *[" if ", " else ", " in ", " and ", " or ", "for a in ", "endfor", "set a = ", "endif"],
        *["range(", "dict(", "namespace(", ".items()", ".get('a')", "[0]", "[::2]", "none", "true"],
        *[
            "10**9",
            "1e9",
            "'x'",
            "loop.index",
            "__class__",
            ".format(",
            "elif ",
            "filter ",
            "with ",
        ],
    ]
)
LITERALS = st.sampled_from(
    ["1", "0", "-3", "2.5", "'a'", "''", "none", "true", "[1, 'b']", "{'a': 1}", "a", "b", "c.d"]
)


@st.composite
def expressions(draw, depth=3):
    if depth == 0:
        return draw(LITERALS)
    inner = expressions(depth=depth - 1)
    form = draw(st.integers(0, 8))
    left, right = draw(inner), draw(inner)
    if form == 0:
        sign = draw(
            st.sampled_from(
                ["+", "-", "*", "/", "//", "%", "**", "~", "==", "<", "in", "and", "or"]
            )
        )
        return f"({left} {sign} {right})"
    if form in {1, 2, 3}:
        name = draw(st.sampled_from(sorted(FILTERS)))
        arguments = draw(
            st.sampled_from(["", f"({right})", "(1, 2)", "('a')", f"({left}, {right})"])
        )
        return f"({left}) | {name}{arguments}"
    if form == 4:
        test = draw(st.sampled_from(sorted(name for name in PREDICATES if name.isalpha())))
        return f"({left}) is {test}" + draw(st.sampled_from(["", f"({right})"]))
    if form == 5:
        method = draw(
            st.sampled_from(
                ["upper", "split", "join", "get", "items", "replace", "format", "index"]
            )
        )
        return f"({left}).{method}({draw(st.sampled_from(['', right]))})"
    if form == 6:
        return f"({left})[{right}]"
    if form == 7:
        return f"({left} if {right} else {left})"
    return draw(st.sampled_from([f"[{left}, {right}]", f"{{'k': {left}}}", f"({left})[1:]"]))


def check(template, scope):
    try:
        value, fuel = template.measure(scope)
    except TemplateFailure as failure:
        assert failure.offset is None or 0 <= failure.offset <= len(template.text)  # noqa: PT017 - part of the property
        return
    assert 0 <= fuel <= FUEL_LIMIT
    assert not isinstance(value, str) or len(value) <= TEXT_LIMIT


@settings(max_examples=150, deadline=None)
@given(st.lists(PIECES, max_size=30).map("".join) | st.text(max_size=60), SCOPES)
def test_any_text_compiles_or_is_a_syntax_error_and_renders_or_fails(text, scope):
    compile_code(text).expressions  # noqa: B018 - compiling any source works
    for build in (compile_template, compile_condition):
        try:
            template = build(text)
        except TemplateSyntax as error:
            assert 0 <= error.offset <= len(text)  # noqa: PT017 - part of the property
        else:
            check(template, scope)


@settings(max_examples=300, deadline=None)
@given(expressions(), SCOPES)
def test_any_expression_renders_or_fails_with_a_template_error(expression, scope):
    try:
        template = compile_condition(expression)
    except TemplateSyntax:
        return
    check(template, scope)

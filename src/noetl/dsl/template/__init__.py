"""The one template engine: Jinja2's language over data, compiled once, bounded, without I/O.

Text outside of expressions stays as it is, its last newline included. `null` is a literal.
`reads` and `read_sites` tell which names of the scope a template reads.
"""

from noetl.dsl.template.code import Code, CodeExpression, compile_code
from noetl.dsl.template.compiler.frame import Read
from noetl.dsl.template.errors import (
    LimitExceeded,
    TemplateFailure,
    TemplateSyntax,
    UndefinedName,
)
from noetl.dsl.template.filters.linear import pattern_fault
from noetl.dsl.template.limits import CODE_SOURCE_LIMIT, SOURCE_LIMIT
from noetl.dsl.template.tables import FILTERS, PREDICATES
from noetl.dsl.template.template import (
    Template,
    compilations,
    compile_condition,
    compile_template,
    is_template,
    read_sites,
    reads,
    render,
)
from noetl.dsl.template.values import MISSING, View, is_true

__all__ = [
    "CODE_SOURCE_LIMIT",
    "FILTERS",
    "MISSING",
    "PREDICATES",
    "SOURCE_LIMIT",
    "Code",
    "CodeExpression",
    "LimitExceeded",
    "Read",
    "Template",
    "TemplateFailure",
    "TemplateSyntax",
    "UndefinedName",
    "View",
    "compilations",
    "compile_code",
    "compile_condition",
    "compile_template",
    "is_template",
    "is_true",
    "pattern_fault",
    "read_sites",
    "reads",
    "render",
]

from noetl.cli.findings import Finding
from noetl.cli.github import annotation
from noetl.dsl.diagnostics import Diagnostic, Span


def test_a_finding_is_one_workflow_command_with_everything_escaped():
    found = Diagnostic(
        code="DSL030",
        severity="error",
        message="100 %\nof `a`",
        hint="mend it.",
        span=Span(3, 5, 3, 8),
    )

    assert annotation(Finding("a,b:c.yaml", found)) == (
        "::error file=a%2Cb%3Ac.yaml,line=3,endLine=3,col=5,endColumn=8,title=DSL030"
        "::100 %25%0Aof `a` (mend it)"
    )


def test_the_command_prints_one_per_finding(noetl, misspelt):
    code, out, err = noetl("validate", misspelt, "-o", "github")

    assert code == 7
    assert out == (
        "::error file=orders.yaml,line=9,endLine=9,col=7,endColumn=14,title=DSL030"
        "::unknown key `itertor` (did you mean `iterator`?)\n"
    )
    assert err.startswith("error[invalid_playbook]: ")

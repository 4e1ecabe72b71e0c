from tests.conformance.values_suite import (
    ExportsSuite,
    HeldSuite,
    RequestsSuite,
    ResultsSuite,
    VariablesSuite,
)

EMPTY = """
delete from noetl.transient; delete from noetl.result; delete from noetl.request_result;
delete from noetl.callback_held; delete from noetl.event; delete from noetl.execution"""


class TestVariables(VariablesSuite):
    pass


class TestResults(ResultsSuite):
    pass


class TestRequests(RequestsSuite):
    pass


class TestHeld(HeldSuite):
    pass


class TestExports(ExportsSuite):
    pass

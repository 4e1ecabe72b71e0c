from tests.conformance.store_suite_more import (
    CatalogListSuite,
    OutputPagesSuite,
    RolesSuite,
    RuntimesSuite,
    SchedulesSuite,
)

EMPTY = """
delete from noetl.catalog; delete from noetl.log; delete from noetl.runtime;
delete from noetl.schedule"""


class TestCatalogList(CatalogListSuite):
    pass


class TestOutputPages(OutputPagesSuite):
    pass


class TestRuntimes(RuntimesSuite):
    pass


class TestSchedules(SchedulesSuite):
    pass


class TestRoles(RolesSuite):
    pass

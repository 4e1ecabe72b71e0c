from tests.conformance.catalog_suite import SearchSuite, TenantsSuite, VersionsSuite

EMPTY = """
delete from noetl.catalog; delete from noetl.execution; delete from noetl.event;
delete from noetl.command"""


class TestVersions(VersionsSuite):
    pass


class TestTenants(TenantsSuite):
    pass


class TestSearch(SearchSuite):
    pass

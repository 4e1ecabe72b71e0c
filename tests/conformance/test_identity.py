from tests.conformance.identity_suite import (
    AccountsSuite,
    RightsSuite,
    SessionsSuite,
    SignInsSuite,
    TenantsSuite,
    TokensSuite,
)

EMPTY = """
delete from noetl.account; delete from noetl.role; delete from noetl.sign_in;
delete from noetl.tenant where tenant_id <> 'default'"""


class TestTenants(TenantsSuite):
    pass


class TestAccounts(AccountsSuite):
    pass


class TestSignIns(SignInsSuite):
    pass


class TestRights(RightsSuite):
    pass


class TestTokens(TokensSuite):
    pass


class TestSessions(SessionsSuite):
    pass

from tests.conformance.audit_suite import AuditSuite

EMPTY = """
alter table noetl.audit disable trigger user;
delete from noetl.audit;
alter table noetl.audit enable trigger user;
update noetl.audit_head set seq = 0, hash = decode(repeat('00', 32), 'hex')"""


class TestAudit(AuditSuite):
    pass

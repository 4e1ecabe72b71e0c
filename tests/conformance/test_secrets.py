from tests.conformance.secrets_suite import (
    CredentialsSuite,
    ExecutionSecretsSuite,
    KeychainSuite,
    RecordsSuite,
    TurnsSuite,
)

EMPTY = """
delete from noetl.credential; delete from noetl.keychain; delete from noetl.execution_secret;
delete from noetl.keychain_turn"""


class TestCredentials(CredentialsSuite):
    pass


class TestKeychain(KeychainSuite):
    pass


class TestTurns(TurnsSuite):
    pass


class TestExecutionSecrets(ExecutionSecretsSuite):
    pass


class TestRecords(RecordsSuite):
    pass

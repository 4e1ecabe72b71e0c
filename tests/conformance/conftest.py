import pytest

pytest.register_assert_rewrite(
    "tests.conformance.audit_suite",
    "tests.conformance.catalog_suite",
    "tests.conformance.reading_suite",
    "tests.conformance.store_suite",
    "tests.conformance.store_suite_more",
    "tests.conformance.upkeep_suite",
    "tests.conformance.values_suite",
)

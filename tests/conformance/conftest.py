import pytest

pytest.register_assert_rewrite(
    "tests.conformance.store_suite", "tests.conformance.store_suite_more"
)

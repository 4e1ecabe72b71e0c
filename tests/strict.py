"""STRICT=1: a test that would be skipped fails, with the reason of the skip.

A machine that lacks something says so as a skip; whoever counts on every test asks for this.
"""

import os

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """Turn a skip into a failure, when that was asked for; what is expected to fail stays so."""
    report = yield
    is_strict = os.environ.get("STRICT") == "1"  # noqa: TID251 - a word to the tests, not a setting
    if is_strict and report.skipped and not hasattr(report, "wasxfail"):
        *_, reason = report.longrepr if isinstance(report.longrepr, tuple) else (report.longrepr,)
        report.outcome = "failed"
        report.longrepr = f"STRICT=1, and this test was skipped: {reason}"
    return report

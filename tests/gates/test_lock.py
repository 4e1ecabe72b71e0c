import re

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)")


@pytest.fixture(scope="module")
def lock(root):
    return (root / "requirements.lock").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def pins(lock):
    found = (PIN.match(line) for line in lock.splitlines())
    return {canonicalize_name(pin["name"]): pin["version"] for pin in found if pin}


def test_every_direct_dependency_is_pinned_within_its_range(config, pins):
    assert _missing(_direct(config), pins) == []


def test_a_dependency_that_is_not_in_the_lock_is_found(pins):
    planted = [Requirement("not-locked-at-all"), Requirement("pytest<1")]

    assert _missing(planted, pins) == ["not-locked-at-all", "pytest<1"]


def test_what_builds_the_project_is_pinned_too(config, pins):
    assert _missing(map(Requirement, config["build-system"]["requires"]), pins) == []


def test_every_pin_has_hashes(lock):
    entries = re.split(r"^(?=[a-z0-9])", lock, flags=re.MULTILINE)[1:]

    assert entries
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []


def test_the_lock_names_no_place_to_download_from(lock):
    assert re.findall(r"https?:|file:|index|find-links|trusted-host", lock) == []


def _direct(config):
    project = config["project"]
    extras = project.get("optional-dependencies", {}).values()
    return [Requirement(r) for r in [*project["dependencies"], *(r for e in extras for r in e)]]


def _missing(requirements, pins):
    return [
        str(r)
        for r in requirements
        if not r.specifier.contains(pins.get(canonicalize_name(r.name), "0"), prereleases=True)
        or canonicalize_name(r.name) not in pins
    ]

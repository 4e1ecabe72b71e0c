"""The filter of system calls, played through as the kernel would."""

from __future__ import annotations

import struct

import pytest

from noetl.tools.interpreter.seccomp import DENIED, assembled, is_known

ALLOW, EPERM, ENOSYS, KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000
ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def judged(machine, number, first=0, second=0, arch=None):
    """What the kernel does with a call."""
    program = list(struct.iter_unpack("=HBBI", assembled(machine)))
    data = struct.pack(
        "=IIQQQ", number, ARCHES[machine] if arch is None else arch, 0, first, second
    )
    at, value = 0, 0
    while True:
        code, yes, no, k = program[at]
        if code == 0x06:
            return k
        if code == 0x20:
            value = struct.unpack_from("=I", data, k)[0]
            at += 1
        else:
            holds = {0x15: value == k, 0x35: value >= k, 0x45: bool(value & k)}[code]
            at += 1 + (yes if holds else no)


@pytest.mark.parametrize(("machine", "column"), [("x86_64", 0), ("aarch64", 1)])
def test_every_call_of_the_list_is_refused_and_others_are_not(machine, column):
    numbers = {pair[column] for pair in DENIED.values()} - {None}
    special = {(56, 220)[column], 435, (16, 29)[column], (41, 198)[column]}
    for number in range(470):
        if number not in special:
            assert judged(machine, number) == (EPERM if number in numbers else ALLOW), number


@pytest.mark.parametrize(("machine", "clone", "ioctl", "socket"),
                         [("x86_64", 56, 16, 41), ("aarch64", 220, 29, 198)])  # fmt: skip
def test_some_calls_are_judged_by_what_they_ask(machine, clone, ioctl, socket):
    assert judged(machine, clone, 0x01200011) == ALLOW  # fork
    assert judged(machine, clone, 0x003D0F00) == ALLOW  # a thread
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert judged(machine, clone, flag | 17) == EPERM
    assert judged(machine, 435) == ENOSYS
    assert judged(machine, ioctl, 0, 0x5401) == ALLOW
    assert judged(machine, ioctl, 0, 0x5412) == EPERM
    assert [judged(machine, socket, family) for family in (1, 2, 10, 16)] == [ALLOW] * 4
    assert [judged(machine, socket, family) for family in (17, 38, 40)] == [EPERM] * 3


def test_calls_of_another_kind_of_machine_end_the_process():
    assert judged("x86_64", 39, arch=0x40000003) == KILL
    assert judged("x86_64", 0x40000000 + 39) == EPERM
    assert is_known("x86_64")
    assert not is_known("riscv64")

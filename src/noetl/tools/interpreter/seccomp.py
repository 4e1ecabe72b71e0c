"""System calls that strictly walled code may not make: a filter for the kernel, made here.

The list is one of refusals: what is on it changes the machine, looks into other processes, or is a
way out of a namespace. A refused call fails with EPERM; the program goes on.
"""

from __future__ import annotations

import errno
import os
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

# Numbers on x86_64 and aarch64; None where the machine has no such call.
DENIED: Final[Mapping[str, tuple[int | None, int | None]]] = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "kcmp": (312, 272), "pidfd_getfd": (438, 438), "process_madvise": (440, 440),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "setns": (308, 268), "unshare": (272, 97),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "create_module": (174, None), "get_kernel_syms": (177, None), "query_module": (178, None),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142),
    "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60),
    "quotactl_fd": (443, 443), "nfsservctl": (180, 42), "syslog": (103, 116),
    "vhangup": (153, 58), "lookup_dcookie": (212, 18), "uselib": (134, None),
    "_sysctl": (156, None), "ioperm": (173, None), "iopl": (172, None), "modify_ldt": (154, None),
    "settimeofday": (164, 170), "adjtimex": (159, 171), "clock_settime": (227, 112),
    "clock_adjtime": (305, 266), "sethostname": (170, 161), "setdomainname": (171, 162),
    "personality": (135, 92), "move_pages": (279, 239), "migrate_pages": (256, 238),
}  # fmt: skip
_MACHINES: Final = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_CLONE, _CLONE3, _IOCTL, _SOCKET = (56, 220), 435, (16, 29), (41, 198)
_NAMESPACES: Final = 0x7E020000  # every flag of clone that makes a namespace
_TYPING: Final = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: keys for somebody else's terminal
# Families of sockets that a network namespace does not hold back, or that only few programs need:
# AF_KEY, AF_PACKET, AF_TIPC, AF_BLUETOOTH, AF_ALG, AF_VSOCK, AF_XDP.
_FAMILIES: Final = (15, 17, 30, 31, 38, 40, 44)
_X32: Final = 0x40000000

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER_AT, _ARCH_AT, _FIRST_AT, _SECOND_AT = 0, 4, 16, 24

Line = tuple[int, int, str, str]
"""An instruction: its code, its value, where to go when it holds, where else; "" is the next."""


def is_known(machine: str) -> bool:
    """Whether a filter can be made for this kind of machine."""
    return machine in _MACHINES


def assembled(machine: str = "") -> bytes:
    """The filter as the kernel reads it."""
    column, arch = _MACHINES[machine or os.uname().machine]
    lines: list[Line | str] = [
        (_LOAD, _ARCH_AT, "", ""),
        (_EQUAL, arch, "", "kill"),
        (_LOAD, _NUMBER_AT, "", ""),
        *([(_AT_LEAST, _X32, "deny", "")] if column == 0 else []),
        (_EQUAL, _CLONE3, "absent", ""),  # its flags lie in memory; callers fall back to clone
        (_EQUAL, _CLONE[column], "clone", ""),
        (_EQUAL, _IOCTL[column], "ioctl", ""),
        (_EQUAL, _SOCKET[column], "socket", ""),
        *((_EQUAL, n, "deny", "") for n in sorted(_numbers(column))),
        (_RETURN, _ALLOW, "", ""),
        "clone", (_LOAD, _FIRST_AT, "", ""), (_ANY_BIT, _NAMESPACES, "deny", "allow"),
        "socket", (_LOAD, _FIRST_AT, "", ""), *((_EQUAL, n, "deny", "") for n in _FAMILIES),
        (_RETURN, _ALLOW, "", ""),
        "ioctl", (_LOAD, _SECOND_AT, "", ""), *((_EQUAL, n, "deny", "") for n in _TYPING),
        "allow", (_RETURN, _ALLOW, "", ""),
        "deny", (_RETURN, _ERRNO | errno.EPERM, "", ""),
        "absent", (_RETURN, _ERRNO | errno.ENOSYS, "", ""),
        "kill", (_RETURN, _KILL, "", ""),
    ]  # fmt: skip
    return _encoded(lines)


def _numbers(column: int) -> list[int]:
    found = (pair[column] for pair in DENIED.values())
    return [number for number in found if number is not None]


def _encoded(lines: list[Line | str]) -> bytes:
    """Instructions with distances instead of names."""
    places: dict[str, int] = {}
    program: list[Line] = []
    for line in lines:
        if isinstance(line, str):
            places[line] = len(program)
        else:
            program.append(line)

    def distance(here: int, name: str) -> int:
        return places[name] - here - 1 if name else 0

    return b"".join(
        struct.pack("=HBBI", code, distance(here, yes), distance(here, no), value)
        for here, (code, value, yes, no) in enumerate(program)
    )

"""Ports: one that is free, and who holds one that is not."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Final

from noetl.errors import NoetlError

_LISTENING: Final = "0A"
_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


class PortInUse(NoetlError):
    """A port that somebody else listens on."""

    code = "port_in_use"
    status = 409


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens on."""
    with socket.socket(_family(host)) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def claim_port(host: str, port: int, option: str = "--server-port") -> int:
    """The port that is asked for, or a free one for 0; refused when it is taken."""
    if port == 0:
        return free_port(host)
    with socket.socket(_family(host)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as fault:
            pid = owner(port)
            by = f" by process {pid}" if pid else ""
            raise PortInUse(
                f"Port {port} of {host} is in use{by}: {fault.strerror}.",
                hint=f"stop it, or give `{option} auto` or another number",
            ) from fault
    return port


def owner(port: int) -> int | None:
    """The process that listens on a port, as far as we may see it."""
    sockets = {inode for table in _TABLES for inode in _inodes(table, port)}
    if not sockets:
        return None
    for entry in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            target = str(entry.readlink())
        except OSError:
            continue
        if target.removeprefix("socket:[").removesuffix("]") in sockets:
            return int(entry.parts[2])
    return None


def _inodes(table: Path, port: int) -> list[str]:
    try:
        lines = table.read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return []
    rows = [line.split() for line in lines]
    return [row[9] for row in rows if row[3] == _LISTENING and _port(row[1]) == port]


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET

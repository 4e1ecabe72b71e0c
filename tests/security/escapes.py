"""Ways out of the sandbox that code may try: one table, each judged by what it reached.

An attempt is a piece of Python. It runs in a process of its own inside a child and leaves what it
got in `got`. `w` names what must not be reached: paths, pids, sockets of a process that stands for
the worker. An attempt has succeeded when `got` holds the canary, or, marked `any`, is not empty, or
when its effect is seen from outside.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from noetl.tools.interpreter.seccomp import DENIED

COLUMN = 0 if os.uname().machine == "x86_64" else 1

CTYPES = "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\nP = ctypes.c_void_p\n"
FILE, PROCESS, SOCKET, KERNEL, LIMIT = "file", "process", "socket", "kernel", "limit"


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One way out."""

    name: str
    about: str
    code: str
    walls: str = "standard"
    by: str = "canary"
    """How success shows: `canary` in what it got, `any`thing got, or the name of an effect."""


def _one(about, name, code, *, by="canary", walls="standard"):
    return Attempt(name=name, about=about, code=code, by=by, walls=walls)


def _read(about, name, path, **more):
    return _one(about, name, f"got = open({path}, 'rb').read(1 << 20).decode('latin-1')", **more)


def _write(about, name, path, **more):
    """Open a file for writing, and leave it as it was: a wall that fails must do no harm."""
    code = (
        f"import os\npath, is_new = {path}, False\n"
        "try:\n    os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)\n    is_new = True\n"
        "except FileExistsError:\n    os.open(path, os.O_WRONLY | os.O_APPEND)\n"
        "if is_new: os.unlink(path)\ngot = path"
    )
    return _one(about, name, code, by="any", **more)


def _call(name, number, arguments="0, 0, 0, 0", *, walls="strict"):
    """A call of the system that strict walls refuse: EPERM comes from the filter alone here."""
    code = (
        f"{CTYPES}done = libc.syscall({number}, {arguments})\n"
        "got = '' if done == -1 and ctypes.get_errno() in (1, 38) else f'{done}'"
    )
    return _one(KERNEL, name, code, by="any", walls=walls)


FILES = (
    _read(FILE, "the token file", "w['token']"),
    _read(FILE, "the outbox", "w['outbox']"),
    _one(FILE, "all below the home of the worker",
         "import os\ngot = ''.join(open(os.path.join(d, f)).read()"
         " for d, _, fs in os.walk(w['home']) for f in fs if not f.endswith('.sock'))"),
    _one(FILE, "names in the home of the worker",
         "import os\ngot = [n for n in os.listdir(w['home'])]", by="any"),
    _read(FILE, "the token through /proc/1/root", "'/proc/1/root' + w['token']"),
    _read(FILE, "the token through /proc/self/root", "'/proc/self/root' + w['token']"),
    _read(FILE, "the token through /proc/PARENT/root", "f'/proc/{PARENT}/root' + w['token']"),
    _read(FILE, "the token through /proc/WORKER/root", "f\"/proc/{w['pid']}/root\" + w['token']"),
    _one(FILE, "the token through a symbolic link",
         "import os\nos.symlink(w['token'], 'link')\ngot = open('link').read()"),
    _one(FILE, "the token through a hard link",
         "import os\nos.link(w['token'], 'hard')\ngot = open('hard').read()"),
    _one(FILE, "the token through a descriptor of the root",
         "import os\nroot = os.open('/', os.O_PATH)\n"
         "got = os.read(os.open(w['token'][1:], os.O_RDONLY, dir_fd=root), 999).decode()"),
    _one(FILE, "the token from above the work folder",
         "import os\nos.chdir('../' * 20)\ngot = open('.' + w['token']).read()"),
    _read(FILE, "the work folder of another playbook", "w['other']"),
    _one(FILE, "work folders beside the own one",
         "import os\nmine = os.path.dirname(os.getcwd())\nwhere, mine = os.path.split(mine)\n"
         "got = [n for n in os.listdir(where) if n != mine]", by="any"),
    _one(FILE, "files of others in /tmp", "got = open(w['tmp']).read()"),
    _one(FILE, "files of others in /var/tmp", "got = open(w['var_tmp']).read()"),
    _one(FILE, "files of others in /dev/shm", "got = open(w['shm']).read()"),
    _read(FILE, "passwords of the machine", "'/etc/shadow'", by="any"),
    # An interpreter that lives there is seen with the folders that lead to it, and nothing else.
    _one(FILE, "the home of root", "import os, sys\n"
         "got = [n for n in os.listdir('/root')"
         " if not (sys.base_prefix + '/').startswith(f'/root/{n}/')]", by="any"),
    _one(FILE, "keys in the home of the worker's user",
         "import glob\ngot = glob.glob(w['user_home'] + '/.ssh/*')"
         " + glob.glob(w['user_home'] + '/.config/*')", by="any"),
    _one(FILE, "keys of the machine", "import glob\n"
         "got = [open(f).read() for f in glob.glob('/etc/ssh/ssh_host_*_key')]", by="any"),
    _one(FILE, "sockets and pids of services", "import os\n"
         "got = [n for n in os.listdir('/run') if n not in ('systemd', 'resolvconf')]", by="any"),
    _write(FILE, "write a .pth beside the packages", "w['packages'] + '/noetl-canary.pth'"),
    _write(FILE, "change the program of the child", "w['child']"),
    _write(FILE, "change its compiled form",
           "__import__('glob').glob(w['cache'] + '/child*.pyc')[0]"),
    _write(FILE, "write a job for cron", "'/etc/cron.d/noetl-canary'"),
    _write(FILE, "preload a library for everybody", "'/etc/ld.so.preload'"),
    _write(FILE, "write a program", "'/usr/local/bin/noetl-canary'"),
    _write(FILE, "write a start-up file of Python",
           "w['user_home'] + '/.pythonrc-noetl-canary'"),
    _write(FILE, "write into the home of the worker", "w['home'] + '/planted'"),
    _write(FILE, "change the token", "w['token']"),
    _write(FILE, "change how core files are kept", "'/proc/sys/kernel/core_pattern'"),
    _one(FILE, "make a control group",
         "import os\nos.mkdir('/sys/fs/cgroup/unified/noetl-canary')\ngot = 'made'", by="any"),
    _one(FILE, "the magic key of the kernel",
         "open('/proc/sysrq-trigger', 'w').write('h')\ngot = 'h'", by="any"),
    _one(FILE, "make a disk and read it",
         "import os, stat\nabout = os.stat('/')\n"
         "os.mknod('disk', stat.S_IFBLK | 0o600, about.st_dev)\n"
         "got = open('disk', 'rb').read(1024).decode('latin-1')", by="any"),
    _one(FILE, "memory and messages of the kernel",
         "got = ''\nfor name in ('/dev/mem', '/dev/kmem', '/proc/kcore', '/dev/kmsg'):\n"
         "    try:\n        got += open(name, 'rb').read(16).decode('latin-1')\n"
         "    except OSError:\n        pass", by="any"),
    _one(FILE, "a link for the worker's broom", "import os\nos.symlink(w['precious'], 'sweep')\n"
         "os.mkdir('deep')\nos.symlink(w['precious'], 'deep/sweep')", by="precious"),
)  # fmt: skip

PROCESSES = (
    _read(PROCESS, "the environment of the worker", "f\"/proc/{w['pid']}/environ\""),
    _read(PROCESS, "the words of the worker", "f\"/proc/{w['pid']}/cmdline\""),
    _one(PROCESS, "the environment of the parent",
         "text = open(f'/proc/{PARENT}/environ').read()\ngot = text if 'HOME=' in text else ''",
         by="any"),
    _one(PROCESS, "the environment of every process",
         "import glob\ngot = ''\nfor f in glob.glob('/proc/[0-9]*/environ'):\n    try:\n"
         "        got += open(f).read()\n    except OSError:\n        pass"),
    _one(PROCESS, "the own environment", "import os\ngot = str(dict(os.environ))"),
    _one(PROCESS, "the settings of the worker by its own reader",
         "from noetl.settings import variable\ngot = str(variable('NOETL_INTERNAL_TOKEN'))"),
    _one(PROCESS, "the memory of the worker by its file",
         "f = open(f\"/proc/{w['pid']}/mem\", 'rb', 0)\nf.seek(w['address'])\n"
         "got = f.read(64).decode('latin-1')"),
    _one(PROCESS, "the memory of the worker by process_vm_readv",
         f"{CTYPES}class V(ctypes.Structure):\n    _fields_ = (('b', P), ('n', ctypes.c_size_t))\n"
         "room = ctypes.create_string_buffer(64)\n"
         "mine, theirs = V(ctypes.addressof(room), 64), V(w['address'], 64)\n"
         "libc.process_vm_readv(w['pid'], ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0)\n"
         "got = room.raw.decode('latin-1')"),
    _one(PROCESS, "attach to the worker with ptrace",
         f"{CTYPES}got = '' if libc.ptrace(16, w['pid'], None, None) else 'attached'", by="any"),
    _one(PROCESS, "seize the worker with ptrace",
         f"{CTYPES}got = '' if libc.ptrace(0x4206, w['pid'], None, None) else 'seized'", by="any"),
    _one(PROCESS, "attach to the parent with ptrace",
         f"{CTYPES}pid = 1 if w['is_inner'] else PARENT\n"
         "got = '' if libc.ptrace(0x4206, pid, None, None) else 'seized'", by="any"),
    _one(PROCESS, "an open file of the worker",
         "got = open(f\"/proc/{w['pid']}/fd/{w['fd']}\").read()"),
    _one(PROCESS, "take a descriptor of the worker",
         f"{CTYPES}fd = libc.syscall(438, libc.syscall(434, w['pid'], 0), w['fd'], 0)\n"
         "got = os.pread(fd, 999, 0).decode()"),
    _one(PROCESS, "the folder that the worker is in",
         "import os\ngot = os.listdir(f\"/proc/{w['pid']}/cwd\")", by="any"),
    _read(PROCESS, "the map of the worker's memory", "f\"/proc/{w['pid']}/maps\"", by="any"),
    _one(PROCESS, "end the worker", "import os\nos.kill(w['pid'], 9)", by="alive"),
    _one(PROCESS, "end the worker's group", "import os\nos.killpg(w['pid'], 9)", by="alive"),
    _one(PROCESS, "end the worker by its descriptor",
         "import os, signal\nsignal.pidfd_send_signal(os.pidfd_open(w['pid']), 9)", by="alive"),
    _one(PROCESS, "signal everybody", "import os, signal\nos.kill(-1, signal.SIGURG)",
         by="unmoved"),
    _one(PROCESS, "slow the worker down",
         "import os\nos.setpriority(os.PRIO_PROCESS, w['pid'], 19)", by="nice"),
    _one(PROCESS, "pin the worker to a core",
         "import os\nos.sched_setaffinity(w['pid'], {0})\ngot = 'pinned'", by="any"),
    _one(PROCESS, "limits of the worker", "import resource\n"
         "resource.prlimit(w['pid'], resource.RLIMIT_NOFILE, (3, 3))\ngot = 'set'", by="any"),
    _write(PROCESS, "offer the worker to the kernel", "f\"/proc/{w['pid']}/oom_score_adj\""),
    _one(PROCESS, "become root", "import os\nos.setuid(0)\ngot = open('/etc/shadow').read()",
         by="any"),
    _one(PROCESS, "become root by a program",
         "import subprocess\ngot = subprocess.run(['su', '-c', 'cat ' + w['token']],"
         " capture_output=True, stdin=-3).stdout.decode()"),
    _one(PROCESS, "rights of root", "text = open('/proc/self/status').read()\n"
         "got = text.split('CapEff:')[1].split()[0].strip('0')", by="any"),
    _one(PROCESS, "rights by another program", "import subprocess\n"
         "got = '' if 'NoNewPrivs:\\t1' in subprocess.run(['cat', '/proc/self/status'],"
         " capture_output=True, text=True).stdout else 'may have more'", by="any"),
)  # fmt: skip

SOCKETS = (
    _one(SOCKET, "an abstract socket of the worker",
         "import socket\ns = socket.socket(socket.AF_UNIX)\ns.settimeout(1)\n"
         "s.connect('\\0' + w['abstract'])\ngot = s.recv(99).decode()"),
    _one(SOCKET, "a socket of a database in the worker's home",
         "import socket\ns = socket.socket(socket.AF_UNIX)\ns.settimeout(1)\n"
         "s.connect(w['socket'])\ngot = s.recv(99).decode()"),
    _one(SOCKET, "a socket of a database in /tmp",
         "import socket\ns = socket.socket(socket.AF_UNIX)\ns.settimeout(1)\n"
         "s.connect(w['tmp_socket'])\ngot = s.recv(99).decode()"),
    _one(SOCKET, "the engine of containers", "import socket\ns = socket.socket(socket.AF_UNIX)\n"
         "s.settimeout(1)\ns.connect('/run/docker.sock')\ngot = 'connected'", by="any"),
    _one(SOCKET, "shared memory of the worker",
         f"{CTYPES}libc.shmat.restype = P\n"
         "where = libc.shmat(libc.shmget(w['shm_key'], 64, 0), None, 0o10000)\n"
         "got = ctypes.string_at(where, 64).decode() if where not in (None, 2**64 - 1) else ''"),
    _one(SOCKET, "a key in the keyring of the worker",
         f"{CTYPES}number = {{'x86_64': (249, 250), 'aarch64': (218, 219)}}[os.uname().machine]\n"
         "key = libc.syscall(number[0], b'user', w['key'].encode(), None, 0)\n"
         "room = ctypes.create_string_buffer(64)\n"
         "libc.syscall(number[1], 11, key, room, 64)\ngot = room.value.decode('latin-1')"),
    _one(SOCKET, "every open descriptor",
         "import os\ngot = ''\nfor fd in range(3, 256):\n    try:\n"
         "        got += os.pread(fd, 999, 0).decode('latin-1')\n"
         "    except OSError:\n        pass"),
    _one(SOCKET, "listen to the network raw",
         "import socket\nsocket.socket(socket.AF_PACKET, socket.SOCK_RAW)\ngot = 'raw'", by="any"),
    _one(SOCKET, "send raw packets",
         "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_RAW, 1)\ngot = 'raw'", by="any"),
    _one(SOCKET, "the port of the worker", "import socket\n"
         "s = socket.create_connection(('127.0.0.1', w['port']), 1)\ngot = s.recv(99).decode()",
         walls="offline"),
    _one(SOCKET, "the metadata address", "import socket\n"
         "socket.create_connection(('169.254.169.254', 80), 1)\ngot = 'connected'", by="any",
         walls="offline"),
    _one(SOCKET, "the metadata address of IPv6", "import socket\n"
         "socket.create_connection(('fd00:ec2::254', 80), 1)\ngot = 'connected'", by="any",
         walls="offline"),
    _one(SOCKET, "names of hosts", "import socket\n"
         "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
         "s.sendto(b'x', ('192.0.2.1', 53))\ngot = 'sent'", by="any", walls="offline"),
    _one(SOCKET, "the abstract socket without a network",
         "import socket\ns = socket.socket(socket.AF_UNIX)\ns.settimeout(1)\n"
         "s.connect('\\0' + w['abstract'])\ngot = s.recv(99).decode()", walls="offline"),
    _one(SOCKET, "bring a network up", "import fcntl, socket, struct\n"
         "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
         "fcntl.ioctl(s, 0x8914, struct.pack('16sh22x', b'lo', 1))\ngot = 'up'", by="any",
         walls="offline"),
    _one(SOCKET, "the port of the worker from strict walls", "import socket\n"
         "s = socket.create_connection(('127.0.0.1', w['port']), 1)\ngot = s.recv(99).decode()",
         walls="strict"),
    _one(SOCKET, "the machine under this one",
         "import socket\nsocket.socket(40, socket.SOCK_STREAM)\ngot = 'made'", by="any",
         walls="strict"),
    _one(SOCKET, "type into a terminal", "import fcntl, os\n"
         "fcntl.ioctl(os.open('/dev/tty', os.O_RDWR), 0x5412, b'x')\ngot = 'typed'", by="any"),
)  # fmt: skip

KERNELS = (
    _one(KERNEL, "a user namespace of its own",
         f"{CTYPES}got = '' if libc.unshare(0x10000000) else 'unshared'", by="any"),
    _one(KERNEL, "a user namespace by clone",
         f"{CTYPES}number = 56 if os.uname().machine == 'x86_64' else 220\n"
         "pid = libc.syscall(number, 0x10000011, None, None, None, None)\n"
         "if pid == 0: os._exit(0)\ngot = '' if pid < 0 else 'cloned'", by="any"),
    _one(KERNEL, "take the cover off the home",
         f"{CTYPES}libc.umount2(w['home'].encode(), 2)\ngot = open(w['token']).read()"),
    _one(KERNEL, "make the root writable", f"{CTYPES}"
         "got = '' if libc.mount(b'none', b'/', None, 0x20 | 0x1000, None) else 'remounted'",
         by="any"),
    _one(KERNEL, "another root", "import os\nos.chroot('.')\ngot = 'changed'", by="any"),
    _one(KERNEL, "the namespace of the worker", f"{CTYPES}"
         "got = '' if libc.setns(os.open(f\"/proc/{w['pid']}/ns/mnt\", 0), 0) else 'entered'",
         by="any"),
    _one(KERNEL, "the namespace of process 1", f"{CTYPES}"
         "got = '' if libc.setns(os.open('/proc/1/ns/mnt', 0), 0) else 'entered'", by="any"),
    _one(KERNEL, "files by their numbers", f"{CTYPES}"
         "about = (ctypes.c_byte * 64)(8, 0, 0, 0, 1, 0, 0, 0, 2)\nroot = os.open('/', 0)\n"
         "number = 304 if os.uname().machine == 'x86_64' else 265\n"
         "got = '' if libc.syscall(number, root, about, 0) < 0 else 'opened'", by="any"),
    _one(KERNEL, "set the clock",
         "import time\ntime.clock_settime(0, time.clock_gettime(0))\ngot = 'set'", by="any"),
    _one(KERNEL, "name the machine",
         "import socket\nsocket.sethostname(socket.gethostname())\ngot = 'named'", by="any"),
    _one(KERNEL, "stop the machine", f"{CTYPES}got = '' if libc.reboot(0) else 'done'", by="any"),
    _one(KERNEL, "load a module",
         f"{CTYPES}number = 175 if os.uname().machine == 'x86_64' else 105\n"
         "libc.syscall(number, b'', 0, b'')\n"
         "got = '' if ctypes.get_errno() in (1, 38) else 'asked'",
         by="any"),
    _one(KERNEL, "run before all others", "import os\n"
         "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))\ngot = 'first'", by="any"),
    _one(KERNEL, "be nicer to oneself", "import os\nos.nice(-5)\ngot = 'nicer'", by="any"),
    _one(KERNEL, "never be ended for memory",
         "import os\nos.write(os.open('/proc/self/oom_score_adj', os.O_WRONLY), b'-1000')\n"
         "got = 'safe'", by="any"),
    *(
        _call(f"strict: {name}", DENIED[name][COLUMN], arguments)
        for name, arguments in (
            ("ptrace", "0, 0, 0, 0"), ("mount", "0, 0, 0, 0"), ("umount2", "b'/proc', 0"),
            ("bpf", "0, 0, 0"), ("keyctl", "0, -3, 0"), ("add_key", "b'user', b'x', b'x', 1, -3"),
            ("request_key", "b'user', b'x', 0, 0"), ("perf_event_open", "0, 0, -1, -1"),
            ("userfaultfd", "1"), ("io_uring_setup", "1, 0"), ("unshare", "0"),
            ("process_vm_readv", "0, 0, 0, 0"), ("name_to_handle_at", "-100, b'/', 0, 0"),
            ("personality", "0xffffffff"),
        )
    ),
    _call("strict: clone3", 435, "0, 0"),
)  # fmt: skip

_FILL = """
import os
names = [f"/tmp/noetl-fill-{w['key']}-{n}" for n in range(3)]
size = 0
for name in names:
    try:
        with open(name, "wb", 0) as f:
            for _ in range(100):
                size += f.write(bytes(1 << 20))
    except OSError:
        pass
for name in names:
    try:
        os.unlink(name)
    except OSError:
        pass
got = size if size > 256 << 20 else ""
"""
LIMITS = (
    _one(LIMIT, "raise the own limits",
         "import resource as r\nr.setrlimit(r.RLIMIT_AS, (r.RLIM_INFINITY, r.RLIM_INFINITY))\n"
         "got = 'raised'", by="any"),
    _one(LIMIT, "leave a core file", "import os, signal, glob\npid = os.fork()\n"
         "if pid == 0: os.abort()\nos.waitpid(pid, 0)\ngot = glob.glob('core*')", by="any"),
    _one(LIMIT, "open a thousand files",
         "kept = []\ntry:\n    for _ in range(1000): kept.append(open('/dev/null'))\n"
         "except OSError: pass\ngot = 'open' if len(kept) > 256 else ''", by="any"),
    _one(LIMIT, "fill /tmp", _FILL, by="any"),
    _one(LIMIT, "fill what is covered", "import os\ngot = []\n"
         "for where in ('/run', '/root', '/home', '/dev', w['home']):\n    try:\n"
         "        open(where + '/noetl-fill', 'wb').write(b'x')\n        got.append(where)\n"
         "    except OSError: pass", by="any"),
)  # fmt: skip

_FORK_BOMB = """
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
"""
_FILES = """
for n in range(10**6):
    open(f"{n}", "wb").write(bytes(1 << 20))
"""
_NAMELESS = """
import os
kept = []
while True:
    f = open("x", "wb")
    os.unlink("x")
    f.write(bytes(8 << 20))
    f.flush()
    kept.append(f)
"""
_NAMES_ALONE = """
n = 0
while True:
    n += 1
    open(f"{n}", "wb").close()
"""
_MEMORY_FILES = """
import os
kept = []
while True:
    kept.append(os.memfd_create("m"))
    os.write(kept[-1], bytes(8 << 20))
"""
_MANY_PROCESSES = """
import os, time
for _ in range(8):
    if os.fork() == 0:
        kept = bytearray(b"x" * (48 << 20))
        time.sleep(20)
time.sleep(20)
"""
_QUESTIONS = """
import json, os, stat, struct
q = json.dumps({"op": "get", "name": "x"}).encode()
q = struct.pack(">I", len(q)) + q
fds = [int(n) for n in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{n}")]
fds = [fd for fd in fds if stat.S_ISSOCK(os.fstat(fd).st_mode)]
while True:
    for fd in fds:
        os.write(fd, q)
"""
# Each in a command of its own: the command must fail this way, and the next one must work.
COSTLY = {
    "a fork bomb": (
        _FORK_BOMB, {"procs": 20}, {"process_limit", "memory_limit", "tool_timeout"},
    ),
    "files without end": (_FILES, {"disk_mb": 32}, {"disk_limit"}),
    "a file without a name": (_NAMELESS, {"disk_mb": 32}, {"disk_limit"}),
    "names without end": (_NAMES_ALONE, {"disk_mb": 4}, {"disk_limit"}),
    "memory behind a descriptor": (_MEMORY_FILES, {"memory_mb": 128}, {"memory_limit"}),
    "memory of many processes": (_MANY_PROCESSES, {"memory_mb": 192}, {"memory_limit"}),
    "lines without end": ("while True:\n    log('x' * 8000)", {"output_mb": 1}, {"output_limit"}),
    "questions without end": (_QUESTIONS, {}, {"output_limit"}),
}  # fmt: skip

ATTEMPTS = (*FILES, *PROCESSES, *SOCKETS, *KERNELS, *LIMITS)

_EVERYBODY = "Without namespaces, files that everybody may read can be read."
_NAMES = "Without namespaces, the list of processes and their words are those of the machine."
NOT_STOPPED = {
    "namespaces": {},
    "user": {
        "files of others in /tmp": _EVERYBODY,
        "files of others in /var/tmp": _EVERYBODY,
        "files of others in /dev/shm": _EVERYBODY,
        "the words of the worker": _NAMES,
        "sockets and pids of services": _EVERYBODY,
        "a socket of a database in /tmp": "A socket that everybody may use can be used.",
        "shared memory of the worker": "Shared memory that everybody may read can be read.",
        "a user namespace of its own": "The kernel lets every user make namespaces.",
        "a user namespace by clone": "The kernel lets every user make namespaces.",
        "fill /tmp": "Only files in the work folder are counted.",
    },
}
"""What a level cannot hold back, and why: the documentation shows it as it stands here."""

"""Runs in the child interpreter: reads jobs from a private descriptor, answers with values.

Standard library only, and as little of it as possible: start-up time is the price of every cold
command. Prints go to descriptors 1 and 2, frames to their own one, so neither can damage the
other. Long because it is loaded alone, outside its package, and so must be one file.
"""

import _locale
import _signal  # type: ignore[import-not-found]  # the wrapper `signal` costs 50 us a command
import _thread
import builtins
import gc
import json
import os
import resource
import struct
import sys
from types import CodeType, FunctionType, ModuleType
from typing import Any, NoReturn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FILE = "<code>"
NAME = "__noetl__"
MOST_FRAMES = 50
MOST_COMPILED = 128
MOST_MESSAGE = 4096
LINE_BYTES = 8192
_HEAD = struct.Struct(">I")
_MIB = 1 << 20
_CLONE_NEWNET = 0x40000000
_PR_CAPBSET_DROP = 24
_CAPABILITY_VERSION = 0x20080522
_KEYWORDS = 0x08
_PR_SET_SECCOMP, _SECCOMP_FILTER = 22, 2
_JOIN_KEYRING: "dict[str, int]" = {"x86_64": 250, "aarch64": 219}
_LANDLOCK_MAKE, _LANDLOCK_ENTER, _LANDLOCK_VERSION = 444, 446, 1
_LANDLOCK_SCOPES, _SCOPES_SINCE = 3, 6  # abstract sockets and signals
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
_CHANGEABLE_SIGNALS = [n for n in range(1, 32) if n not in {9, 19}]


class NotSerialisable(Exception):
    """A value has no form in JSON."""


# ---------------------------------------------------------------------------- frames


class Channel:
    """Length-prefixed JSON over one descriptor."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._buffer = bytearray()
        self._lock = _thread.allocate_lock()
        self._asking = _thread.allocate_lock()

    def read(self) -> Any:  # noqa: ANN401 - a frame is JSON
        """Wait for the next frame; the end of the stream ends the process."""
        need = 4
        while True:
            if len(self._buffer) >= 4:  # noqa: PLR2004 - bytes of the length
                need = 4 + _HEAD.unpack_from(self._buffer)[0]
                if len(self._buffer) >= need:
                    frame = json.loads(self._buffer[4:need])
                    del self._buffer[:need]
                    return frame
            chunk = os.read(self._fd, max(65536, min(need - len(self._buffer), _MIB)))
            if not chunk:
                os._exit(0)
            self._buffer += chunk

    def send(self, payload: bytes) -> None:
        """Write one frame whole."""
        with self._lock:
            view = memoryview(_HEAD.pack(len(payload)) + payload)
            while view:
                view = view[os.write(self._fd, view) :]

    def tell(self, **frame: object) -> None:
        """Write one frame of plain values."""
        self.send(json.dumps(frame, default=str).encode("utf-8", "replace"))

    def ask(self, name: str) -> Any:  # noqa: ANN401 - the answer is JSON
        """Request a value of the context and wait for it."""
        return self.request(op="get", name=name)

    def request(self, **frame: object) -> Any:  # noqa: ANN401 - the answer is JSON
        """Send a frame and wait for its answer."""
        with self._asking:
            self.tell(**frame)
            return self.read()


# ---------------------------------------------------------------------------- what code sees


class Context:
    """A read-only mapping whose missing names are fetched when they are read."""

    __slots__ = ("_channel", "_known", "_names")

    def __init__(self, channel: Channel, known: "dict[str, Any]", names: "list[str]") -> None:
        self._channel = channel
        self._known = known
        self._names = names

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - the user's data
        if name not in self._known:
            answer = self._channel.ask(name)
            if answer.get("error"):
                raise RuntimeError(answer["error"])
            if not answer.get("found"):
                raise KeyError(name)
            self._known[name] = answer["value"]
        return self._known[name]

    def get(self, name: str, default: object = None) -> Any:  # noqa: ANN401 - the user's data
        """The value of a name, or the default."""
        try:
            return self[name]
        except KeyError:
            return default

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self._names or self.get(name, self) is not self)

    def __iter__(self) -> "Iterator[str]":
        return iter(dict.fromkeys([*self._known, *self._names]))

    def __len__(self) -> int:
        return len(dict.fromkeys([*self._known, *self._names]))

    def keys(self) -> "list[str]":
        """Every name that can be read."""
        return list(self)

    def values(self) -> "list[Any]":
        """Every value; fetches what was not read yet."""
        return [self[name] for name in self]

    def items(self) -> "list[tuple[str, Any]]":
        """Every name with its value; fetches what was not read yet."""
        return [(name, self[name]) for name in self]

    def __repr__(self) -> str:
        return f"<context of {', '.join(self)}>"


class Log:
    """`log("text")`, `log.warning("text")`: lines for the log of the command."""

    __slots__ = ("_channel",)

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def __call__(self, text: object, level: str = "info") -> None:
        """Write one line."""
        self._channel.tell(op="log", level=str(level), text=str(text)[:LINE_BYTES])

    def debug(self, text: object, *values: object) -> None:
        """Write one line at level debug."""
        self(_filled(text, values), "debug")

    def info(self, text: object, *values: object) -> None:
        """Write one line at level info."""
        self(_filled(text, values))

    def warning(self, text: object, *values: object) -> None:
        """Write one line at level warning."""
        self(_filled(text, values), "warning")

    def error(self, text: object, *values: object) -> None:
        """Write one line at level error."""
        self(_filled(text, values), "error")


class Blobs:
    """Large bytes: pieces of them pass the channel, so that none are in memory as a whole."""

    __slots__ = ("_channel", "_turn", "_work")

    def __init__(self, channel: Channel, work: str) -> None:
        self._channel = channel
        self._work = work
        self._turn = _thread.allocate_lock()

    def put(self, source: Any, content_type: str = "") -> Any:  # noqa: ANN401 - the user's file
        """Store a file by its path, an open file, or bytes; where they lie, and what they are."""
        import binascii  # noqa: PLC0415 - start-up time

        with self._turn:
            for piece in _pieces(source):
                data = binascii.b2a_base64(piece, newline=False).decode("ascii")
                self._asked(op="part", data=data)
            return self._asked(op="stored", content_type=str(content_type))

    def open(self, ref: Any, path: "str | None" = None) -> str:  # noqa: ANN401 - a text, or a map that has one
        """Write a blob to a file of the work folder; its path."""
        import binascii  # noqa: PLC0415 - start-up time

        if isinstance(ref, dict):
            ref = ref.get("ref") or ref.get("_ref")
        name = os.path.join(self._work, path or "blob-" + str(ref).rpartition("/")[2])  # noqa: PTH118 - start-up time
        with self._turn, open(name, "wb") as file:  # noqa: PTH123 - start-up time
            self._asked(op="open", ref=str(ref))
            while (piece := self._asked(op="next")) is not None:
                file.write(binascii.a2b_base64(piece))
        return name

    def _asked(self, **frame: object) -> Any:  # noqa: ANN401 - the answer is JSON
        answer = self._channel.request(**frame)
        if answer.get("error"):
            raise RuntimeError(answer["error"])
        return answer["value"]


def _pieces(source: Any) -> "Iterator[Any]":  # noqa: ANN401 - a path, a file or bytes
    """The bytes of a source, a mebibyte at a time."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        view = memoryview(source).cast("B")
        for start in range(0, len(view), _MIB):
            yield view[start : start + _MIB]
    elif hasattr(source, "read"):
        while piece := source.read(_MIB):
            yield piece
    else:
        with open(source, "rb") as file:  # noqa: PTH123 - start-up time
            yield from _pieces(file)


def _filled(text: object, values: "tuple[object, ...]") -> str:
    """The text with its values, as `logging` writes them."""
    return str(text) % values if values else str(text)


# ---------------------------------------------------------------------------- values


def encode(value: object, log: Log) -> bytes:
    """The value as JSON; NaN and infinity become null, what has no form is refused."""
    try:
        text = json.dumps(value, default=_plain, allow_nan=False, ensure_ascii=False)
    except NotSerialisable:
        raise
    except ValueError as fault:
        if "ircular" in str(fault):
            raise NotSerialisable("the value contains itself") from None
        log.warning("NaN or infinity in the result became null")
        text = json.dumps(_finite(value), default=_plain, allow_nan=False, ensure_ascii=False)
    except (TypeError, RecursionError) as fault:
        raise NotSerialisable(str(fault)) from None
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise NotSerialisable("a text holds half of a surrogate pair") from None


def _plain(value: object) -> object:
    """The JSON form of a value that `json` does not know."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        import binascii  # noqa: PLC0415 - start-up time

        return binascii.b2a_base64(value, newline=False).decode("ascii")
    module = type(value).__module__
    if module in {"decimal", "_decimal", "_pydecimal"}:
        return str(value)
    if isinstance(value, Context):
        return dict(value.items())
    if _is_date(value):
        return _rfc3339(value)
    raise NotSerialisable(f"a value of type {type(value).__qualname__} has no form in JSON")


def _is_date(value: object) -> bool:
    dates = sys.modules.get("datetime")
    return dates is not None and isinstance(value, (dates.date, dates.time))


def _rfc3339(value: Any) -> str:  # noqa: ANN401 - a date, time or datetime
    text = str(value.isoformat())
    return text[:-6] + "Z" if text.endswith("+00:00") else text


def _finite(value: object) -> object:
    """The value with null for what is not a finite number."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


# ---------------------------------------------------------------------------- code


def compiled(source: str, known: "dict[str, CodeType]") -> CodeType:
    """The code of a text, compiled once; a `return` at the top is allowed."""
    code = known.get(source)
    if code is None:
        if len(known) >= MOST_COMPILED:
            del known[next(iter(known))]
        try:
            code = compile(source, FILE, "exec", dont_inherit=True)
        except SyntaxError as fault:
            if "'return' outside function" not in str(fault.msg):
                raise
            code = _with_return(source)
        known[source] = code
    return code


def _with_return(source: str) -> CodeType:
    """A function around the code whose names stay global, so that `return` means what it says."""
    import ast  # noqa: PLC0415 - only this form of code pays for it

    class Unannotated(ast.NodeTransformer):
        """An annotated name cannot be global: the annotation goes."""

        def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
            if not isinstance(node.target, ast.Name):
                return node
            made = (
                ast.Pass() if node.value is None
                else ast.Assign(targets=[node.target], value=node.value)
            )  # fmt: skip
            return ast.copy_location(made, node)

        def _leave(self, node: ast.AST) -> ast.AST:
            return node

        visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = _leave  # noqa: N815 - named by ast

    tree = ast.parse(source, FILE)
    body = Unannotated().visit(tree).body
    shell = ast.parse(f"def {NAME}(): pass", FILE)
    function: Any = shell.body[0]
    function.body = body
    inner = next(c for c in _compile(shell).co_consts if isinstance(c, CodeType))
    names = sorted({*inner.co_varnames, *inner.co_cellvars})
    fell_off = ast.parse("def f(): return ...").body[0].body  # type: ignore[attr-defined]  # a function
    function.body = [*([ast.Global(names=names)] if names else []), *body, *fell_off]
    return _compile(shell)


def _compile(tree: Any) -> CodeType:  # noqa: ANN401 - an ast.Module; ast is loaded when needed
    import ast  # noqa: PLC0415 - loaded already

    return compile(ast.fix_missing_locations(tree), FILE, "exec", dont_inherit=True)


def imported(libs: object) -> "dict[str, Any]":
    """The names that `libs` binds."""
    if isinstance(libs, dict):
        return {name: _library(name, what) for name, what in libs.items()}
    found: dict[str, Any] = {}
    for name in libs if isinstance(libs, list) else ():
        __import__(name)
        found[name.partition(".")[0]] = sys.modules[name.partition(".")[0]]
    return found


def _library(name: str, what: object) -> Any:  # noqa: ANN401 - a module or what it holds
    if not isinstance(what, dict):
        module = str(what or name)
        __import__(module)
        return sys.modules[module]
    source, attribute = what.get("from"), what.get("import") or name
    if not source:
        return _library(name, attribute)
    __import__(source)
    if not hasattr(sys.modules[source], attribute):
        __import__(f"{source}.{attribute}")
    return getattr(sys.modules[source], attribute)


def call_main(main: "Callable[..., Any]", given: "dict[str, Any]", inputs: "dict[str, Any]") -> Any:  # noqa: ANN401 - the user's value
    """Call `main` with the arguments that it names."""
    positional, named, takes_all = _parameters(main)
    missing = [name for name, optional in positional + named if not optional and name not in given]
    if missing:
        raise TypeError(f"main() takes {missing[0]!r}, which is not an input of the step")
    first: list[Any] = []
    for name, _ in positional:
        if name not in given:
            break
        first.append(given[name])
    names = [name for name, _ in named]
    more = {name: given[name] for name in names if name in given}
    if takes_all:
        spoken_for = {name for name, _ in positional}
        more |= {key: item for key, item in inputs.items() if key not in spoken_for}
    value = main(*first, **more)
    if hasattr(value, "__await__"):
        import asyncio  # noqa: PLC0415 - only an async main pays for it

        async def awaited() -> Any:  # noqa: ANN401 - the user's value
            return await value

        return asyncio.run(awaited())
    return value


def _parameters(
    main: "Callable[..., Any]",
) -> "tuple[list[tuple[str, bool]], list[tuple[str, bool]], bool]":
    """Positional-only and other parameters, each with whether it may be left out; `**`."""
    if isinstance(main, FunctionType) and not hasattr(main, "__wrapped__"):
        code = main.__code__
        plain = code.co_varnames[: code.co_argcount]
        first_default = len(plain) - len(main.__defaults__ or ())
        both = [(name, i >= first_default) for i, name in enumerate(plain)]
        only = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
        keyword = [(name, name in (main.__kwdefaults__ or {})) for name in only]
        split = code.co_posonlyargcount
        return both[:split], both[split:] + keyword, bool(code.co_flags & _KEYWORDS)
    import inspect  # noqa: PLC0415 - rare and slow to load

    first: list[tuple[str, bool]] = []
    named: list[tuple[str, bool]] = []
    takes_all = False
    for item in inspect.signature(main).parameters.values():
        if item.kind is item.VAR_KEYWORD:
            takes_all = True
        elif item.kind is not item.VAR_POSITIONAL:
            group = first if item.kind is item.POSITIONAL_ONLY else named
            group.append((item.name, item.default is not item.empty))
    return first, named, takes_all


# ---------------------------------------------------------------------------- failures


def failure(fault: BaseException, source: str) -> "dict[str, Any]":
    """The error of a fault in the user's code."""
    if isinstance(fault, MemoryError):
        return {"kind": "limit", "code": "memory_limit", "message": "the memory limit was reached"}
    if isinstance(fault, NotSerialisable):
        return {"kind": "schema", "code": "not_serialisable", "message": f"result: {fault}"}
    if isinstance(fault, OSError) and fault.errno == 27:  # noqa: PLR2004 - EFBIG
        return {"kind": "limit", "code": "disk_limit", "message": "a file is over the disk limit"}
    import linecache  # noqa: PLC0415 - failures may be slow
    import traceback  # noqa: PLC0415 - failures may be slow

    linecache.cache[FILE] = (len(source), None, source.splitlines(keepends=True), FILE)
    name = type(fault).__qualname__
    said = _said(fault)
    shown = _user_frames(fault)
    text = "".join(
        traceback.format_exception(type(fault), fault, shown, limit=-MOST_FRAMES, chain=True)
    )
    line, column = _where(fault, shown)
    code = "exception"
    if isinstance(fault, SyntaxError) and fault.filename == FILE:
        code, said = "syntax_error", f"{fault.msg} (line {line}, column {column})"
    elif isinstance(fault, SystemExit):
        code = "exit"
    elif isinstance(fault, ImportError):
        code = "import_error"
    return {
        "kind": "python",
        "code": code,
        "message": f"{name}: {said}"[:MOST_MESSAGE],
        "details": {"exception": name, "traceback": text[-65536:], "line": line, "column": column},
    }


def _said(fault: BaseException) -> str:
    try:
        return str(fault)
    except Exception:  # noqa: BLE001 - the user's own __str__ may raise anything
        return "(its text cannot be made)"


def _user_frames(fault: BaseException) -> Any:  # noqa: ANN401 - a traceback or None
    """The traceback without the frames of this file."""
    frames = fault.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    return frames


def _where(fault: BaseException, frames: Any) -> "tuple[int | None, int | None]":  # noqa: ANN401 - see above
    """The last line of the user's own text that was reached."""
    if isinstance(fault, SyntaxError) and fault.filename == FILE:
        return fault.lineno, fault.offset
    line = None
    while frames is not None:
        if frames.tb_frame.f_code.co_filename == FILE:
            line = frames.tb_lineno
        frames = frames.tb_next
    return line, None


# ---------------------------------------------------------------------------- the process


class Surroundings:
    """What code may change in the process, as it was before the first command."""

    def __init__(self, work: str, env: "dict[str, str]") -> None:
        self.work = work
        self.env = env
        self.argv = [FILE]
        self.path = list(sys.path)
        self.handlers = {n: _signal.getsignal(n) for n in _CHANGEABLE_SIGNALS}
        self.umask = os.umask(0o077)
        self.recursion = sys.getrecursionlimit()
        self.hooks = (sys.excepthook, sys.displayhook, sys.unraisablehook)
        self.locale = _locale.setlocale(_locale.LC_ALL, None)
        self.fds: set[str] = set()
        self.put_back()
        self.fds = self.open_fds()

    @staticmethod
    def prepare(more: "dict[str, str]") -> None:
        """Give the next command its environment."""
        if more:
            os.environ.update(more)  # noqa: TID251 - the child's own, made for the user's code

    def put_back(self) -> None:
        """Undo what the last command changed; the next one has fresh streams."""
        sys.stdout, sys.stderr = _stream(1), _stream(2)
        environ = os.environ  # noqa: TID251 - the child's own, made for the user's code
        if environ != self.env:
            environ.clear()
            environ.update(self.env)
        os.chdir(self.work)
        os.umask(self.umask)
        sys.argv = list(self.argv)
        sys.path[:] = self.path
        sys.settrace(None)
        sys.setprofile(None)
        sys.setrecursionlimit(self.recursion)
        sys.excepthook, sys.displayhook, sys.unraisablehook = self.hooks
        for number, handler in self.handlers.items():
            if _signal.getsignal(number) is not handler:
                _signal.signal(number, handler)
        for timer in (_signal.ITIMER_REAL, _signal.ITIMER_VIRTUAL, _signal.ITIMER_PROF):
            _signal.setitimer(timer, 0)
        if _locale.setlocale(_locale.LC_ALL, None) != self.locale:
            _locale.setlocale(_locale.LC_ALL, self.locale)
        gc.enable()
        if _emptied(self.work):
            self._forget_modules()

    def _forget_modules(self) -> None:
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None) or "").startswith(self.work):
                del sys.modules[name]

    def left_over(self) -> "list[str]":
        """What the last command left running or open."""
        found = []
        if _thread._count() > 0:  # noqa: SLF001 - the only counter without an import
            found.append("threads")
        if _has_children():
            found.append("children")
        if self.open_fds() - self.fds:
            gc.collect()
            if self.open_fds() - self.fds:
                found.append("files")
        return found

    @staticmethod
    def open_fds() -> "set[str]":
        """The open descriptors, without the one that lists them."""
        try:
            return {fd for fd in os.listdir("/proc/self/fd") if _is_open(int(fd))}  # noqa: PTH208 - start-up time
        except OSError:
            return set()


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _stream(fd: int) -> Any:  # noqa: ANN401 - a text stream
    return open(fd, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def _emptied(folder: str) -> bool:
    """Remove what lies in the folder; whether anything did."""
    names = os.listdir(folder)  # noqa: PTH208 - start-up time
    for name in names:
        path = f"{folder}/{name}"
        try:
            os.unlink(path)  # noqa: PTH108 - start-up time
        except IsADirectoryError:
            import shutil  # noqa: PLC0415 - rare

            shutil.rmtree(path, ignore_errors=True)
        except OSError:
            continue
    return bool(names)


def _has_children() -> bool:
    """Whether a child is alive; dead ones are reaped."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True


def shut_in(
    uid: "int | None", *, offline: bool, is_inner: bool, calls: str = "", parts: bool = True
) -> None:
    """Give up what the process does not need: network, rights, identity, life after its parent.

    `calls` is the filter of system calls, as hexadecimal text.
    """
    if offline:
        import ctypes  # noqa: PLC0415 - Linux only

        if ctypes.CDLL(None).unshare(_CLONE_NEWNET) != 0:
            sys.exit("the network cannot be left: unshare was refused")
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    if not sys.platform.startswith("linux"):
        return
    import ctypes  # noqa: PLC0415 - Linux only

    prctl = ctypes.CDLL(None).prctl
    if os.geteuid() == 0:  # root without rights: it may not look into its parent
        for number in range(64):
            prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
        header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
        ctypes.CDLL(None).capset(header, (ctypes.c_uint32 * 6)())
    prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
    prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if not is_inner:
        prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0)
    if parts:
        _part_from_the_worker(ctypes)
    _offer()
    if calls:
        _refuse(ctypes, bytes.fromhex(calls))


def _part_from_the_worker(ctypes: Any) -> None:  # noqa: ANN401 - the module
    """Leave its keyring; reach neither its abstract sockets nor its processes by signals.

    An older kernel lacks one or the other: users and namespaces are the walls then.
    """
    call = ctypes.CDLL(None).syscall
    number = _JOIN_KEYRING.get(os.uname().machine)
    if number is not None:
        call(number, 1, None)
    if call(_LANDLOCK_MAKE, None, ctypes.c_size_t(0), _LANDLOCK_VERSION) >= _SCOPES_SINCE:
        rules = (ctypes.c_uint64 * 3)(0, 0, _LANDLOCK_SCOPES)
        fd = call(_LANDLOCK_MAKE, rules, ctypes.c_size_t(ctypes.sizeof(rules)), 0)
        if fd >= 0:
            call(_LANDLOCK_ENTER, fd, 0)
            os.close(fd)


def _offer() -> None:
    """Let the kernel end this process before its worker, should memory be short."""
    try:
        with open("/proc/self/oom_score_adj", "wb", 0) as file:  # noqa: PTH123 - start-up time
            file.write(b"500")
    except OSError:
        return


def _refuse(ctypes: Any, program: bytes) -> None:  # noqa: ANN401 - the module
    """Have the kernel refuse calls, for good."""

    class Program(ctypes.Structure):  # type: ignore[misc]  # ctypes is loaded when needed
        _fields_ = (("count", ctypes.c_ushort), ("lines", ctypes.c_char_p))

    told = Program(len(program) // 8, program)
    if ctypes.CDLL(None).prctl(_PR_SET_SECCOMP, _SECCOMP_FILTER, ctypes.byref(told), 0, 0) != 0:
        sys.exit("the filter of system calls was refused")


def limit(limits: "dict[str, int | None]") -> None:
    """Set the limits of this process; they cannot be raised again."""
    _cap(resource.RLIMIT_CORE, 0)
    _cap(resource.RLIMIT_AS, limits.get("memory_mb"), _MIB)
    _cap(resource.RLIMIT_FSIZE, limits.get("disk_mb"), _MIB)
    _cap(resource.RLIMIT_NOFILE, limits.get("files"))
    _cap(resource.RLIMIT_NPROC, limits.get("procs"))


def _cap(which: int, value: "int | None", unit: int = 1) -> None:
    if value is None:
        return
    hard = resource.getrlimit(which)[1]
    most = value * unit if hard == resource.RLIM_INFINITY else min(value * unit, hard)
    resource.setrlimit(which, (most, most))


def _allow_cpu(seconds: "int | None") -> None:
    """Let the next command use this much processor time, counted from now."""
    if seconds is not None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        soft = int(used.ru_utime + used.ru_stime) + 1 + seconds
        resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - pathlib costs start-up time
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return 0


# ---------------------------------------------------------------------------- one command


class Child:
    """One interpreter and the commands that it runs, one after another."""

    def __init__(self, channel: Channel, around: Surroundings) -> None:
        self._channel = channel
        self._around = around
        self._log = Log(channel)
        self._blobs = Blobs(channel, around.work)
        self._compiled: dict[str, CodeType] = {}
        self._output_bytes = 64 * _MIB
        self._left: list[str] = []
        self._rss = 0

    def serve(self) -> NoReturn:
        """Run jobs until the parent closes the channel."""
        while True:
            job = self._channel.read()
            if job["op"] == "limit":
                limit(job["limits"])
                self._output_bytes = (job["limits"].get("output_mb") or 64) * _MIB
            elif job["op"] == "run":
                self._answer(job)

    def _answer(self, job: "dict[str, Any]") -> None:
        """Run a job and tell what came of it; what it left is cleared away while nobody waits."""
        if self._left:  # the job was sent before this was known
            self._channel.tell(op="refuse", id=job["id"])
            return
        _allow_cpu(job.get("cpu_s"))
        self._around.prepare(job["env"])
        body = self._body(job)
        for stream in (sys.stdout, sys.stderr):
            _flush(stream)
        head = b'{"op": "done", "id": %d, "rss": %d, ' % (job["id"], self._rss)
        self._channel.send(head + body + b"}")
        self._left = self._restored()
        self._rss = _resident_bytes()
        if self._left:
            self._channel.tell(op="left", left=self._left)

    def _body(self, job: "dict[str, Any]") -> bytes:
        """The value or the error of a job, as a field of the answer."""
        module = ModuleType(NAME)
        sys.modules[NAME] = module
        try:
            value = encode(self._value(job, module.__dict__), self._log)
            if len(value) > self._output_bytes:
                error = {"kind": "limit", "code": "output_limit",
                         "message": f"the result has {len(value)} bytes"}  # fmt: skip
                return b'"error": ' + json.dumps(error).encode()
        except BaseException as fault:  # noqa: BLE001 - the border: any fault of user code is an answer
            return b'"error": ' + json.dumps(failure(fault, job["code"])).encode()
        finally:
            module.__dict__.clear()
        return b'"value": ' + value

    def _restored(self) -> "list[str]":
        try:
            self._around.put_back()
            return self._around.left_over()
        except BaseException as fault:  # noqa: BLE001 - a process that cannot be put back is retired
            return [f"surroundings: {fault}"]

    def _value(self, job: "dict[str, Any]", names: "dict[str, Any]") -> Any:  # noqa: ANN401 - the user's value
        inputs: dict[str, Any] = job["inputs"]
        known = {**job["context"], "args": inputs}
        given = {
            "input_data": inputs,
            "args": inputs,
            "context": Context(self._channel, known, job["names"]),
            "idempotency_key": job["key"],
            "progress": self._progress,
            "log": self._log,
            "blob": self._blobs.put,
            "open_blob": self._blobs.open,
            **inputs,
        }
        code = compiled(job["code"], self._compiled)
        names |= given
        names["__builtins__"] = builtins.__dict__
        if "result" in inputs:  # readable, yet not an assignment of the code
            names["__builtins__"] = {**builtins.__dict__, "result": names.pop("result")}
        try:
            names |= imported(job["libs"])
            exec(code, names)  # noqa: S102 - running the user's code is what this process is for
            if NAME in code.co_names and NAME in names:
                value = names[NAME]()
                if value is not ...:
                    return value
            main = names.get("main")
            if "result" not in names and callable(main) and main is not given.get("main"):
                return call_main(main, given, inputs)
        except SystemExit as fault:
            if fault.code not in {None, 0}:
                raise
        return names.get("result")

    def _progress(self, fraction: float, message: object = "") -> None:
        self._channel.tell(op="progress", fraction=float(fraction), message=str(message)[:500])


def _flush(stream: Any) -> None:  # noqa: ANN401 - whatever the user's code put there
    try:
        stream.flush()
    except Exception:  # noqa: BLE001 - a closed or replaced stream has nothing to say
        return


def _become(about: "dict[str, Any]") -> NoReturn:
    """Turn into another program, within the same walls and limits."""
    limit(about["limits"])
    _cap(resource.RLIMIT_CPU, about["limits"].get("cpu_s"))
    os.chdir(about["work"])
    _signal.signal(_signal.SIGPIPE, _signal.SIG_DFL)
    try:
        os.execvpe(about["argv"][0], about["argv"], about["env"])  # noqa: S606 - no shell is wanted
    except OSError as fault:
        os.write(2, f"{about['argv'][0]}: {fault.strerror}\n".encode())
        os._exit(127 if isinstance(fault, FileNotFoundError) else 126)


def _told(word: str) -> "dict[str, Any]":
    """What the worker says about this process: the word itself, or a file that only we can read."""
    if word.startswith("{"):
        return dict(json.loads(word))
    with open(word, "rb") as file:  # noqa: PTH123 - pathlib costs start-up time
        about = json.loads(file.read())
    os.unlink(word)  # noqa: PTH108 - as above
    return dict(about)


def main() -> NoReturn:
    """Start: give up rights, say hello, serve."""
    about = _told(sys.argv[1])
    if about["fd"] is not None:
        os.set_inheritable(about["fd"], False)  # noqa: FBT003 - the signature of os
    if about["group"] is not None:
        os.write(about["group"], b"0")
        os.close(about["group"])
    shut_in(
        about["uid"], offline=about["offline"], is_inner=about["inner"], calls=about["filter"],
        parts=about["parts"],
    )  # fmt: skip
    if about["fd"] is None:
        _become(about)
    channel = Channel(about["fd"])
    around = Surroundings(about["work"], about["env"])
    channel.tell(op="hello", pid=os.getpid())
    Child(channel, around).serve()

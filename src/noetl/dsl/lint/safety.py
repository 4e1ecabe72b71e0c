"""Rules over what must not leak in or out: secrets, untrusted text, credentials."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from noetl.dsl.lint.subject import Finding, Subject, at_value, entry
from noetl.dsl.names import nodes_of
from noetl.dsl.shape.reader import SHELL, SQL, Site
from noetl.dsl.tasks import Ducklake
from noetl.dsl.template import is_template
from noetl.dsl.template.syntax import nodes
from noetl.dsl.yaml import ROOT, Map, Place, Seq

if TYPE_CHECKING:
    from collections.abc import Iterator

_SECRET_TEXT = re.compile(
    r"gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|\bsk-[A-Za-z0-9_-]{16,}|\bAKIA[0-9A-Z]{16}\b"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----|\bxox[abeoprs]-[A-Za-z0-9-]{8,}|\bAIza[\w-]{35}"
    r"|\beyJ[\w-]{8,512}\.eyJ[\w-]{4,4096}\.[\w-]{8,}"
)
_SECRET_KEY = re.compile(
    r"(?:^|_)(?:password|passwd|pwd|secret|token|api_?key|private_?key|secret_?key|access_?key)\Z"
)
_NO_SECRET_KEY = re.compile(r"(?:^|_)(?:page|next|continuation|cursor|sync)_token\Z")
_TEMPLATE = re.compile(r"\{\{.*?(?:\}\}|\Z)|\{[%#].*?(?:[%#]\}|\Z)", re.DOTALL)
_URL_PASSWORD = re.compile(r"://[^\s/?#@:]*:(?P<password>[^\s/?#@\0]+)@")
_BEARER = re.compile(r"(?:Bearer|Basic|Token)\s+\S{8,}", re.IGNORECASE)
_BLANK = re.compile(r"<.*>|\*+|x+|\.+", re.IGNORECASE)
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_REFERENCES = frozenset({"value_from", "metadata", "labels", "inputs"})
_RESOLVED = frozenset({"secret_manager", "credential"})
_OWN_DATA = frozenset({
    "input", "args", "params", "headers", "json", "form", "body", "data", "payload", "env", "set",
    "mapping", "options", "workload", "arguments", "result", "code",
})  # fmt: skip
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh"})
_COMMAND_FLAG = re.compile(r"-[a-z]*c[a-z]*")
_TRUSTED_FILTERS = frozenset({"int", "float", "length", "len", "count", "abs", "round"})
_SAFE = {SQL: _TRUSTED_FILTERS | {"sql_literal", "sql_ident", "tojson"}, SHELL: _TRUSTED_FILTERS}
_UNTRUSTED = frozenset({
    "workload", "input", "args", "output", "event", "result", "results", "steps", "_prev", "page",
    "payload", "message", "frame",
})  # fmt: skip


# ---------------------------------------------------------------------------- DSL203


def clear_text_secret(subject: Subject) -> Iterator[Finding]:
    """A value that looks like a secret in clear text (DSL203)."""
    for place, text in _texts(subject.parsed.document.root, ROOT):
        found = _SECRET_TEXT.search(text)
        password = _url_password(text)
        if found is not None:
            yield subject.in_text("this looks like a secret", place, text, found.start())
        elif password is not None:
            message = "this address holds a password in clear text"
            yield subject.in_text(message, place, text, password)
        elif not is_template(text) and _is_secret(place, text):
            yield at_value(f"`{place.key}` looks like a secret in clear text", place)


def _url_password(text: str) -> int | None:
    """Where a password that is no template and no stand-in stands in an address."""
    if "://" not in text:
        return None
    plain = _TEMPLATE.sub(lambda found: "\0" * len(found[0]), text)
    for found in _URL_PASSWORD.finditer(plain):
        password = found["password"]
        if not password.startswith("$") and _BLANK.fullmatch(password) is None:
            return found.start("password")
    return None


def _texts(value: object, place: Place) -> Iterator[tuple[Place, str]]:
    if isinstance(value, str):
        yield place, value
    for key, item in _items(value):
        yield from _texts(item, place.child(value, key))


def _items(value: object) -> list[tuple[str | int, Any]]:
    if isinstance(value, Map):
        return list(value.items())
    return list(enumerate(value)) if isinstance(value, Seq) else []


def _is_secret(place: Place, text: str) -> bool:
    """Whether the key says that its plain text is a secret."""
    if not text.strip() or _BLANK.fullmatch(text) or _is_reference(place):
        return False
    key = _WORD_START.sub("_", str(place.key)).lower().replace("-", "_")
    if key == "authorization":
        return _BEARER.fullmatch(text) is not None
    return _SECRET_KEY.search(key) is not None and _NO_SECRET_KEY.search(key) is None


def _is_reference(place: Place) -> bool:
    """Whether a value names where the secret lies, or only describes it."""
    path = place.path
    if _REFERENCES & {*path[:-1]}:
        return True
    here: Place | None = place
    while here is not None:
        box = here.container
        if path[0] == "keychain" and isinstance(box, Map) and box.get("kind") in _RESOLVED:
            return True
        here = here.parent
    return False


# ---------------------------------------------------------------------------- DSL207


def untrusted_text(subject: Subject) -> Iterator[Finding]:
    """SQL or shell text that holds values from outside as they are (DSL207)."""
    for site in subject.sites:
        role = SHELL if _is_shell_text(site.place) else site.role
        if role not in _SAFE:
            continue
        untrusted = _untrusted(subject, site)
        what = "SQL" if role == SQL else "shell"
        for node in nodes_of(site.template):
            if isinstance(node, nodes.Emit) and _carries(node.value, untrusted, _SAFE[role]):
                message = f"a value from outside stands unquoted in {what} text"
                yield subject.in_template(message, site, node.offset)


def _is_shell_text(place: Place) -> bool:
    """Whether a text is what `argv` has a shell read: the one after `sh -c`."""
    argv, key = place.container, place.key
    if not isinstance(argv, Seq) or place.parent is None or place.parent.key != "argv":
        return False
    words = [str(word) for word in argv]
    if words[0].rpartition("/")[2] not in _SHELLS:
        return False
    flags = [index for index, word in enumerate(words) if _COMMAND_FLAG.fullmatch(word)]
    return key == flags[0] + 1 if flags else False


def _untrusted(subject: Subject, site: Site) -> frozenset[str]:
    """The names whose values come from outside, and the locals made of them."""
    playbook, step = subject.playbook, subject.step_of(site)
    names = {*_UNTRUSTED, *playbook.workload, *playbook.inputs}
    names |= {item.name for item in playbook.workflow}
    if step is not None:
        names |= {task.name for task in step.tools}
        if step.loop is not None:
            names |= {step.loop.iterator, "iter"}
    for node in nodes_of(site.template):
        if isinstance(node, (nodes.For, nodes.Set)):
            value = node.source if isinstance(node, nodes.For) else node.value
            if _carries(value, names, frozenset()):
                names |= {*node.target.names}
    return frozenset(names)


def _carries(node: Any, names: frozenset[str] | set[str], safe: frozenset[str]) -> bool:  # noqa: ANN401 - a node, or what it holds
    """Whether the value of an expression holds text of one of the names as it is."""
    match node:
        case nodes.Name(name=name):
            return name in names
        case nodes.Filter(base=base, name=name, arguments=arguments):
            return name not in safe and _carries((base, arguments), names, safe)
        case nodes.Choice(then=then, otherwise=otherwise):
            return _carries(then, names, safe) or _carries(otherwise, names, safe)
        case nodes.Compare() | nodes.Test():
            return False
        case tuple():
            return any(_carries(item, names, safe) for item in node)
    slots = getattr(node, "__slots__", ())
    return any(_carries(getattr(node, name), names, safe) for name in slots)


# ---------------------------------------------------------------------------- DSL210


def unknown_credential(subject: Subject) -> Iterator[Finding]:
    """A credential alias that the server does not know (DSL210)."""
    if subject.known_credentials is None:
        return
    known = {*subject.known_credentials, *(item.name for item in subject.playbook.keychain)}
    root = subject.parsed.document.root
    for name in ("keychain", "executor", "workbook", "workflow"):
        for key, value in _items(root):
            if key == name:
                yield from _unknown(value, ROOT.child(root, key), known)
    for step in subject.playbook.workflow:
        for task in step.tools:
            if isinstance(task, Ducklake):
                yield from _alias(task.catalog, entry(task, "catalog"), known)


def _unknown(value: object, place: Place, known: set[str]) -> Iterator[Finding]:
    for key, item in _items(value):
        where = place.child(value, key)
        if key in {"auth", "credential"} and isinstance(item, str):
            yield from _alias(item, where, known)
        elif key not in _OWN_DATA:
            yield from _unknown(item, where, known)


def _alias(alias: str, place: Place, known: set[str]) -> Iterator[Finding]:
    if alias not in known and not is_template(alias):
        yield at_value(f"no credential is called `{alias[:80]}`", place)

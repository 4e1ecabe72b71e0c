"""Where results can be kept: which stores there are, and what each of them needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from noetl.dsl.tasks.task import Store

BUCKETS = frozenset({"s3", "gcs"})
"""Kinds that are a bucket of the author's own."""
_NOWHERE = {
    "memory": "what one worker remembers, no other can read",
    "duckdb": "a file of one worker is read by no other",
}
_OF_BUCKETS = ("bucket", "prefix", "credential")


class StoreFault(NamedTuple):
    """What is wrong with a store."""

    key: str
    message: str
    hint: str
    is_missing: bool = False


def store_faults(store: Store, written: Mapping[str, object]) -> Iterator[StoreFault]:
    """What cannot be done with an `output.store`; `written` are the keys that its author wrote."""
    kind = store.kind
    if kind in _NOWHERE:
        hint = "use `kv` or `object`, or leave the kind out"
        yield StoreFault("kind", f"`{kind}`: {_NOWHERE[kind]}", hint)
        return
    if store.compression == "lz4":
        yield StoreFault("compression", "`lz4` is not available", "use `zstd` or `gzip`")
    if store.driver is not None:
        message = "there is one driver of each kind, and nothing to choose"
        yield StoreFault("driver", message, "leave the key out; `kind` says it all")
    if kind in BUCKETS:
        for name in ("bucket", "credential"):
            if not getattr(store, name):
                message = f"a store of the kind `{kind}` needs `{name}`"
                yield StoreFault(
                    name, message, "or use `object` for the platform's own", is_missing=True
                )
        return
    for name in _OF_BUCKETS:
        key = "auth" if name == "credential" and "auth" in written else name
        if key in written:
            message = f"`{key}` means nothing with the kind `{kind}`"
            yield StoreFault(key, message, "it belongs to the kinds `s3` and `gcs`")

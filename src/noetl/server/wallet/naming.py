"""Which secrets a document names: a worker is given no others, and none of them is deleted."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from noetl.dsl.parse import parse
from noetl.dsl.playbook import Playbook
from noetl.dsl.plugins import STORED
from noetl.dsl.shape import Model
from noetl.dsl.tasks import Ducklake, Plugin, Secrets
from noetl.dsl.template import is_template
from noetl.store.base import CatalogListing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl.dsl.parse import Parsed
    from noetl.dsl.playbook.document import KeychainEntry
    from noetl.store.base import Catalog

MOST_KEPT: Final = 1_000
_PAGE: Final = 200
MOST_ALIAS: Final = 255
WALLET: Final = "wallet"
_KEYS: Final = frozenset({"auth", "credential", "credentials"})
_ASIDE: Final = frozenset({"place", "extra", "metadata", "inputs", "workload", "keychain"})
"""What is no task; the credentials of keychain entries are read by the server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What a playbook names."""

    aliases: frozenset[str]
    keychain: Mapping[str, KeychainEntry]
    """Entries by name, in the order in which they stand: later ones may build on earlier ones."""
    is_templated: bool
    """Some alias is a template, so the workload has a say in it."""
    managed: frozenset[tuple[str, str]] = frozenset()
    """Providers and names of the secrets that its tasks name, templates included."""


class Names:
    """What playbooks name, by catalog id; the last ones that were asked for are kept."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Named] = OrderedDict()

    def of(self, catalog_id: str, playbook: Playbook) -> Named:
        """What a version of a playbook names, which never changes."""
        found = self._kept.get(catalog_id)
        if found is None:
            found = self._kept[catalog_id] = named_in(playbook)
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(catalog_id)
        return found


def named_in(playbook: Playbook) -> Named:
    """What a playbook names."""
    found = set(_walk(playbook))
    literal = frozenset(text for text in found if not is_template(text))
    managed = frozenset(_managed(playbook))
    return Named(
        aliases=literal,
        keychain={entry.name: entry for entry in playbook.keychain},
        is_templated=len(literal) < len(found) or any(is_template(name) for _, name in managed),
        managed=managed,
    )


def texts_of(workload: object) -> frozenset[str]:
    """Every text of a workload that could be an alias."""
    return frozenset(text for text in _texts(workload) if 0 < len(text) <= MOST_ALIAS)


def written_texts(value: object) -> frozenset[str]:
    """Every text inside of a value, as it was written."""
    return frozenset(_texts(value))


def _walk(value: Any) -> Iterator[str]:  # noqa: ANN401 - anything that a model holds
    """The aliases inside of a value, templates included."""
    if isinstance(value, Model):
        yield from _of_kind(value)
        for part in fields(value):
            if part.name in _KEYS:
                yield from _texts(getattr(value, part.name))
            elif part.name not in _ASIDE or (part.name == "extra" and isinstance(value, Plugin)):
                yield from _walk(getattr(value, part.name))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(item) if key in _KEYS else _walk(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _walk(item)


def _managed(value: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - anything that a model holds
    """The secrets of providers that tasks give a name to."""
    if isinstance(value, Secrets):
        yield value.provider, value.name
    elif isinstance(value, Model):
        for part in fields(value):
            if part.name not in _ASIDE:
                yield from _managed(getattr(value, part.name))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _managed(item)


def _of_kind(task: Model) -> Iterator[str]:
    """Aliases that stand under a name of their own in some kinds of tasks."""
    if isinstance(task, Ducklake):
        yield task.catalog
    elif isinstance(task, Secrets) and task.provider == WALLET:
        yield task.name


def _texts(value: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, Model):
        for part in fields(value):
            if part.name not in _ASIDE:
                yield from _texts(getattr(value, part.name))


class Usage:
    """Looks through the catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def of(self, tenant_id: str, alias: str) -> tuple[str, ...]:
        """The paths whose meaning names a credential."""
        found: list[str] = []
        after: tuple[str, int] | None = None
        while True:
            page = await self._catalog.listed(tenant_id, CatalogListing(limit=_PAGE, after=after))
            # Most documents do not hold the word at all; the rest is read.
            found += [
                entry.path
                for entry in page
                if alias in entry.content
                and _names(await asyncio.to_thread(parse, entry.content, plugins=STORED), alias)
            ]
            if len(page) < _PAGE:
                return tuple(found)
            after = (page[-1].path, page[-1].version)


def _names(parsed: Parsed, alias: str) -> bool:
    """Whether a document names a credential; its own name is no use of it."""
    model: Any = parsed.model
    if isinstance(model, Playbook):
        named = named_in(model)
        return alias in named.aliases or any(
            alias in written_texts((entry.credential, entry.auth)) for entry in model.keychain
        )
    root = parsed.document.root
    spec = root.get("spec") if isinstance(root, dict) else None
    return alias in written_texts(spec)

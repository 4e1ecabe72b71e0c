"""Which runs a reader wants, as one statement whose cost is that of its page.

A filter that has an index in the order of the list is read from its beginning. Where several such
beginnings make the list (statuses, times, the paths under a prefix), each is read and they are
merged. A filter without any order (a label, the beginning of a message, several at once) is first
looked for among the next rows of the list, where it usually is; only when they are not enough,
everything that fits is found and sorted.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from noetl.store.postgres.documents import stored
from noetl.store.postgres.filters import Asked
from noetl.store.postgres.ordering import OWN, WALK, Key, Reach, Statement
from noetl.store.postgres.rows import EXECUTION_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.store.base import Listing

MOST_LABEL: Final = 600
"""Characters of a label, name and value, that the table of labels has."""
FROM: Final = f"select {EXECUTION_COLUMNS} from noetl.execution "  # noqa: S608 - made of constants
_PARAMETER: Final = re.compile(r"\$(\d+)")


class Wanted(Asked):
    """A list as a statement; its texts are constants with numbered parameters."""

    def __init__(self, listing: Listing, reach: Reach) -> None:
        super().__init__(listing)
        self._reach = reach

    def names(self) -> Statement | None:
        """What finds the paths to read one by one, if that is the way to find the runs."""
        if not self._prefixes or self._tenant is None:
            return None
        first = " union all ".join(
            f"select (select path from noetl.execution where {self._tenant} "  # noqa: S608 - made of constants
            f"and path ~>=~ {low} and path ~<~ {high} order by path using ~<~ limit 1), {high}"
            for low, high in map(self._range, self._prefixes)
        )
        text = f"""with recursive names(path, high) as (
        ({first})
        union all
        select (select e.path from noetl.execution e where e.{self._tenant} and e.path ~>~ n.path
            and e.path ~<~ n.high order by e.path using ~<~ limit 1), n.high
        from names n where n.path is not null)
    select distinct path from (
        select path from names where path is not null limit {self._reach.paths + 1}) as known"""  # noqa: S608 - as above
        return self._made(text)

    def page(self, names: Sequence[str] | None = None) -> Statement:
        """What finds the page; `names` are the paths to read, unless they are too many."""
        return self._made(self._text(names))

    def _made(self, text: str) -> Statement:
        """A statement with the values that it uses, and no others."""
        used = list(dict.fromkeys(map(int, _PARAMETER.findall(text))))
        numbers = {before: place for place, before in enumerate(used, 1)}
        renumbered = _PARAMETER.sub(lambda found: f"${numbers[int(found[1])]}", text)
        return Statement(renumbered, [self._values[number - 1] for number in used])

    def _text(self, names: Sequence[str] | None) -> str:
        if names is not None and len(names) <= self._reach.paths:
            return self._rows(self._by_name(list(names)))
        if self._is_one_label():
            return self._rows(self._by_label())
        if self._prefixes or self._is_loose:
            return self._rows(self._searched(WALK, [], self._every, self._every))
        has_own = self._filters and (self._tenant or self._has_free_index)
        branches = [
            (key, [*when, *status])
            for key, when in self._times(OWN if has_own else WALK)
            for status in self._by_status()
        ]
        if len(branches) == 1:
            key, more = branches[0]
            return (
                f"{FROM} where {self._where(key, *self._every, *more)} {self._order(key)} "
                f"limit {self._limit} offset {self._offset}"
            )
        parts = " union all ".join(self._begun(key, *self._every, *more) for key, more in branches)
        return self._rows(f"with found as materialized ({parts})")

    # ------------------------------------------------------------------------ ways to find

    def _by_name(self, names: list[str]) -> str:
        """Every path that fits, from its beginning."""
        given = self._value(names)
        (key, when), *displaced = self._times(OWN)
        begun = self._begun(key, *self._others, "path = n.name", *when)
        parts = [
            f"select f.execution_id from unnest({given}::text[]) as n(name), lateral {begun} as f"  # noqa: S608 - as above
        ]
        parts += [
            self._begun(OWN, *self._others, f"path = any({given}::text[])", *more)
            for _, more in displaced
        ]
        if self._message is None:
            return f"with found as materialized ({' union all '.join(parts)})"
        message = [*self._others, self._message]
        head = self._searched(OWN, ["error is not null"], message, message)
        return head.removesuffix(")") + " union " + " union ".join(parts) + ")"

    def _is_one_label(self) -> bool:
        """Whether a label is all that is asked for, one that its table has."""
        labels, times = self._listing.labels, (self._listing.since, self._listing.until)
        is_alone = not (self._filters or self._prefixes or any(times)) and len(self._every) == 1
        size = sum(len(stored(name)) + len(stored(value)) for name, value in labels.items())
        is_one = len(labels) == 1 and size <= MOST_LABEL
        return self._tenant is not None and is_alone and is_one

    def _by_label(self) -> str:
        """The runs of a label, in the order of its table."""
        ((name, value),) = self._listing.labels.items()
        label = f"name = {self._value(stored(name))} and value = {self._value(stored(value))}"
        return (
            "with found as materialized (select execution_id from noetl.execution_label "  # noqa: S608 - as above
            f"where {self._where(WALK, label)} {self._order(WALK)} limit {self._most})"
        )

    def _searched(self, key: Key, among: list[str], fits: list[str], found: list[str]) -> str:
        """Look among the next rows, and only when that is not enough among all that fit."""
        times = self._times(key)
        statuses = self._one_of_statuses()
        reach = self._reach.with_error if among else self._reach.rows
        near = "select 0::bigint as execution_id where false"
        if len(times) == 1:
            near = f"""select execution_id from (
            select * from noetl.execution where {self._where(key, *among)}
            {self._order(key)} limit {reach}) as following
        where {" and ".join([*fits, *statuses])} {self._order(WALK)} limit {self._most}"""  # noqa: S608 - as above
        far = " union ".join(
            f"(select execution_id from noetl.execution "  # noqa: S608 - as above
            f"where {self._where(bounds, *found, *statuses, *when)} "
            f"and (select count(*) from near) < {self._most} offset 0)"
            for bounds, when in times
        )
        return f"""with near as materialized ({near}),
    found as materialized (select execution_id from near union
        (select execution_id from ({far}) as fitting {self._order(WALK)} limit {self._most}))"""  # noqa: S608 - as above

    def _begun(self, key: Key, *conditions: str) -> str:
        """The ids that an index begins with."""
        return (
            f"(select execution_id from noetl.execution where {self._where(key, *conditions)} "  # noqa: S608 - as above
            f"{self._order(key)} limit {self._most})"
        )

    def _rows(self, found: str) -> str:
        # An array, so that the rows are fetched by their ids, whatever their number is taken for.
        chosen = (
            f"select execution_id from found {self._order(WALK)} "  # noqa: S608 - as above
            f"limit {self._limit} offset {self._offset}"
        )
        return f"{found} {FROM} where execution_id = any(array({chosen})) {self._order(WALK)}"

    def _where(self, key: Key, *conditions: str) -> str:
        held = [] if self._tenant is None else [self._tenant]
        if self._after is not None:
            held.append(key.bound(">" if self._listing.is_ascending else "<", self._after))
        return " and ".join([*held, *conditions]) or "true"

    def _order(self, key: Key) -> str:
        return key.ordered(is_ascending=self._listing.is_ascending)

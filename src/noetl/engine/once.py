"""Works something out once per object that never changes, by identity."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
MOST = 10_000


class Once(Generic[T]):
    """Values by the objects that they were made of; it keeps those, so no id is used twice."""

    def __init__(self, make: Callable[..., T], most: int = MOST) -> None:
        self._make = make
        self._most = most
        # The first key of a plain dict that has lost many is found slowly.
        self._known: OrderedDict[tuple[int, ...], tuple[tuple[object, ...], T]] = OrderedDict()

    def __call__(self, *of: object) -> T:
        """The value of these objects; beyond the limit the oldest one makes room."""
        key = tuple(map(id, of))
        found = self._known.get(key)
        if found is None:
            found = of, self._make(*of)
            if len(self._known) >= self._most:
                self._known.popitem(last=False)
            self._known[key] = found
        return found[1]

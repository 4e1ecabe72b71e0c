"""What callers give: the enumerations and inputs of the schema, and JSON as it is."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any, NewType

import msgspec
import strawberry

JSON = NewType("JSON", object)
"""Any value that JSON has."""


@strawberry.enum
class ExecutableResourceKind(Enum):
    """What is run."""

    playbook = "playbook"
    agent = "agent"


@strawberry.enum
class Delivery(Enum):
    """Whom the result goes to."""

    client = "client"
    session = "session"
    user = "user"
    none = "none"


@strawberry.enum
class OnTimeout(Enum):
    """What becomes of a run whose request has passed its deadline."""

    leave = "leave"
    cancel = "cancel"


@strawberry.input(description="Which runs a list shows.")
class ExecutionFilter:
    """Which runs a list shows; names are those of the server's list."""

    status: list[str] | None = strawberry.UNSET
    path: str | None = strawberry.UNSET
    version: int | None = strawberry.UNSET
    catalog_id: strawberry.ID | None = strawberry.UNSET
    parent_execution_id: strawberry.ID | None = strawberry.UNSET
    label: list[str] | None = strawberry.UNSET
    pool: str | None = strawberry.UNSET
    created_by: str | None = strawberry.UNSET
    since: str | None = strawberry.UNSET
    until: str | None = strawberry.UNSET
    has_error: bool | None = strawberry.UNSET
    request_id: strawberry.ID | None = strawberry.UNSET
    client_id: str | None = strawberry.UNSET
    search: Annotated[str | None, strawberry.argument(name="search")] = strawberry.UNSET

    def asked(self) -> dict[str, Any]:
        """As the server's query has it."""
        given = {name: value for name, value in vars(self).items() if is_given(value)}
        if "search" in given:
            given["q"] = given.pop("search")
        if "has_error" in given:
            given["has_error"] = str(given["has_error"]).lower()
        return given


@strawberry.input(description="A call of the server's API, as under `/noetl/`.")
class ProxyInput:
    """A call of the server's API."""

    path: Annotated[
        str, strawberry.argument(description="What would stand behind `/noetl/`, quoted as there.")
    ]
    method: str = "GET"
    query: str | None = strawberry.UNSET
    body: JSON | None = strawberry.UNSET


def plain(value: object) -> JSON | None:
    """A value as JSON has it; none stays none."""
    return None if value is None else JSON(msgspec.to_builtins(value))


def is_given(value: object) -> bool:
    """Whether an argument was given, and not as null."""
    return value is not None and value is not strawberry.UNSET

"""Starting, repeating and ending runs, as mutations tell of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import strawberry

from noetl.api.gateway import Wish
from noetl.edge.errors import Unacceptable
from noetl.errors import NoetlError
from noetl.gateway.graphql.asked import MOST_WAIT_S
from noetl.gateway.graphql.inputs import JSON
from noetl.gateway.graphql.types import ExecuteResult, status_of
from noetl.ids import parse

if TYPE_CHECKING:
    from noetl.api.gateway import Accepted, RequestDocument
    from noetl.gateway.graphql.asked import Asked

_MADE: Final = frozenset(Wish.__struct_fields__)
_TEXTS: Final = ("textOutput", "text_output", "summary", "result")


def wish_of(given: dict[str, Any]) -> Wish:
    """The arguments of `executePlaybook`, as every way in has them."""
    variables = given.get("variables")
    if variables is not None and not isinstance(variables, dict):
        raise Unacceptable("`variables` is not an object")
    return Wish(**{name: value for name, value in given.items() if name in _MADE})


async def started(asked: Asked, wish: Wish, wait_s: int) -> ExecuteResult:
    """A run that begins; with its end, when that comes soon enough."""
    if not 0 <= wait_s <= MOST_WAIT_S:
        raise Unacceptable(f"`wait` is not in 0..{MOST_WAIT_S}")
    asked.gate.limits.take("execute", asked.person.user_id)
    accepted = await asked.gate.requests.start(asked.person, wish)
    granted = asked.patience(wait_s)
    document = None
    if granted:
        document = await asked.gate.requests.ended(accepted.request_id, granted)
    return _told(accepted, wish.name, document)


async def repeated(
    asked: Asked, execution_id: str, variables: object, client_id: str | None
) -> ExecuteResult:
    """A run that begins again."""
    if variables is not None and not isinstance(variables, dict):
        raise Unacceptable("`variables` is not an object")
    asked.gate.limits.take("execute", asked.person.user_id)
    accepted = await asked.gate.requests.rerun(
        asked.person, parse(execution_id), variables, client_id
    )
    try:
        name = (await asked.gate.requests.document(asked.person, accepted.request_id)).playbook_path
    except NoetlError:  # it runs, whatever it is called
        name = None
    return _told(accepted, name, None)


async def cancelled(
    asked: Asked, execution_id: str, reason: str, *, cascade: bool
) -> ExecuteResult:
    """A run that ends."""
    ended, status = await asked.gate.requests.cancel(
        asked.person, execution_id=parse(execution_id), cascade=cascade, reason=reason
    )
    request_id = name = None
    try:
        name = (await asked.server(ended).execution(ended, with_state=False)).path
        request_id = (await asked.gate.requests.of_execution(asked.person, ended)).request_id
    except NoetlError:  # it was started without a request, or cannot be looked at now
        pass
    return ExecuteResult(
        id=strawberry.ID(ended),
        execution_id=strawberry.ID(ended),
        request_id=None if request_id is None else strawberry.ID(request_id),
        name=name,
        status=status,
        text_output=None,
    )


def text_of(data: object) -> str | None:
    """What a result says in words: the first of its fields that are meant to be read."""
    for name in _TEXTS if isinstance(data, dict) else ():
        found = data.get(name) if isinstance(data, dict) else None
        if found is not None:
            return found if isinstance(found, str) else msgspec.json.encode(found).decode()
    return None


def body_of(body: bytes) -> JSON | None:
    """What the server answered: JSON as it is, all else as text."""
    if not body:
        return None
    try:
        return JSON(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return JSON(body.decode("utf-8", "replace"))


def _told(accepted: Accepted, name: str | None, document: RequestDocument | None) -> ExecuteResult:
    has_ended = document is not None and not document.is_open
    return ExecuteResult(
        id=strawberry.ID(accepted.execution_id),
        execution_id=strawberry.ID(accepted.execution_id),
        request_id=strawberry.ID(accepted.request_id),
        name=name,
        status=status_of(document) if document is not None and has_ended else accepted.status,
        text_output=text_of(document.result) if document is not None and has_ended else None,
    )

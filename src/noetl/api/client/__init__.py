"""The only way to talk to the server: one method per route, typed in and typed out."""

from __future__ import annotations

from noetl.api.client.keeping import Keeps
from noetl.api.client.library import Library
from noetl.api.client.looking import Looks
from noetl.api.client.operating import Operations
from noetl.api.client.people import People
from noetl.api.client.secrets import Secrets
from noetl.api.client.starting import Starts
from noetl.api.client.subscriptions import Listens
from noetl.api.client.working import Works


class Client(Starts, Works, Library, Looks, Keeps, People, Operations, Secrets, Listens):
    """A server behind a transport, with a method for every route."""

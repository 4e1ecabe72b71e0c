"""The API document: made from the route table, so that it cannot say anything else."""

from noetl.server.routes.openapi.document import server_document
from noetl.server.routes.openapi.page import page_of
from noetl.server.routes.openapi.serving import routes

__all__ = ("page_of", "routes", "server_document")

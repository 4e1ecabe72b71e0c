"""The API document: made from the route table, so that it cannot say anything else."""

from noetl.server.routes.openapi.document import document_of
from noetl.server.routes.openapi.page import page_of
from noetl.server.routes.openapi.serving import routes

__all__ = ("document_of", "page_of", "routes")

"""The API document of a process: made from its route table, so that it cannot say anything else."""

from noetl.edge.openapi.document import Book, document_of
from noetl.edge.openapi.operations import Named, method_of, names_of
from noetl.edge.openapi.schemas import OF_SERVER, PLACE

__all__ = ("OF_SERVER", "PLACE", "Book", "Named", "document_of", "method_of", "names_of")

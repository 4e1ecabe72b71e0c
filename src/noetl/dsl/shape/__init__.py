"""One description per value: how it is read, what it may be, and how editors see it.

A shape reads plain data into a typed value and reports every fault with its place; the same shape
publishes JSON Schema and the words that `noetl explain` prints. A model is a frozen dataclass whose
fields carry shapes, so that parser, schema and reference can never disagree.
"""

from noetl.dsl.shape.base import (
    Constraint,
    Definitions,
    Fields,
    JsonSchema,
    Key,
    Model,
    Of,
    OlderKey,
    Shape,
    blank,
    blank_of,
    key,
    model,
    nearest,
)
from noetl.dsl.shape.constraints import (
    AsPublished,
    AtLeastOne,
    ExactlyOne,
    Needs,
    NotBoth,
)
from noetl.dsl.shape.containers import (
    ByType,
    ListOf,
    MapOf,
    WhenThen,
    Written,
)
from noetl.dsl.shape.leaves import (
    NAME_PATTERN,
    TEMPLATE_SCHEMA,
    Choice,
    Data,
    Flag,
    Name,
    Number,
    Text,
    any_case_pattern,
    choice,
    is_name,
    whole,
)

__all__ = [
    "NAME_PATTERN",
    "TEMPLATE_SCHEMA",
    "AsPublished",
    "AtLeastOne",
    "ByType",
    "Choice",
    "Constraint",
    "Data",
    "Definitions",
    "ExactlyOne",
    "Fields",
    "Flag",
    "JsonSchema",
    "Key",
    "ListOf",
    "MapOf",
    "Model",
    "Name",
    "Needs",
    "NotBoth",
    "Number",
    "Of",
    "OlderKey",
    "Shape",
    "Text",
    "WhenThen",
    "Written",
    "any_case_pattern",
    "blank",
    "blank_of",
    "choice",
    "is_name",
    "key",
    "model",
    "nearest",
    "whole",
]

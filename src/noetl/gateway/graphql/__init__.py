"""GraphQL: the schema, its limits, its two transports."""

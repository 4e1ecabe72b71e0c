"""What a step can do: one module per kind, `base` the contract, `registry` the table of kinds."""

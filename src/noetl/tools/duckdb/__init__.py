"""The kind `duckdb`: SQL in child processes that see the data roots and nothing else."""

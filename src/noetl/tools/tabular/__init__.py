"""Rows of SQL kinds: in place while they are few, as Parquet behind a reference when not."""

"""The kind `transfer`: rows from one store to another, all of them or none."""

"""What was done by whom: the chain of audit rows, written in batches."""

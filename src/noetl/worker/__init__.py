"""Who does the work: claim, execute, report."""

"""Everything on one machine: the same server and worker in one process."""

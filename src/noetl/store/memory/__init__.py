"""All facts of one process in its own memory: local runs, tests, and the model of the others."""

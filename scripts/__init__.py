"""Tasks of the Makefile that are more than a line."""

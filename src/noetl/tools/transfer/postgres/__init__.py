"""PostgreSQL as a source and a target: COPY on both sides."""

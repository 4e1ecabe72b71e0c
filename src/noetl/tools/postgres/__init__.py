"""The kind `postgres`: SQL and COPY on databases of the author's own, over psycopg."""

"""All facts in PostgreSQL: what several servers share and what survives every one of them."""

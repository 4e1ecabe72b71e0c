"""Where facts live: one Protocol per table of facts, and a backend for each way to keep them."""

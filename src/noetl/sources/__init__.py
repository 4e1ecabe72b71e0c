"""Where messages come from: one port, and a backend for each kind of source."""

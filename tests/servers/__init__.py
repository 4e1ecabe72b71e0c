"""Real servers for tests: started on first use, stopped by their own ids."""

ENCRYPTION_KEY = "bm9ldGwgdGVzdCBrZXkgb2YgMzIgYnl0ZXMgbG9uZyE="
"""A key for the wallets of servers that tests start."""

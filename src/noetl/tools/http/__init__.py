"""The kind `http`: requests that leave through one guarded door."""

"""Secret managers that entries of a keychain read from."""

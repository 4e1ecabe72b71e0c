"""Secrets of the server: credentials, the keychain, secret inputs, and how workers get them."""

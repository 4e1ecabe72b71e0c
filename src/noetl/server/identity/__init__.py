"""Accounts, roles, tokens and sessions: who somebody is, and what is kept about it."""

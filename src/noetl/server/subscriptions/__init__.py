"""Subscriptions: their lives, their logs, their ticks, and what became of their messages."""

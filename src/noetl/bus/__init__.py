"""Hints that wake workers; losing them costs time, never work."""

"""The kind `subscription`: a bounded batch of messages, and what becomes of it."""

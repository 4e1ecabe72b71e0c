"""The process that listens for subscriptions: each message becomes one execution."""

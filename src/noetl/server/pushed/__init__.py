"""Deliveries of senders: what gateways tell of them, replays, and trial deliveries."""

"""Secrets at rest, on their way and at their source; the network is a port that callers give."""

"""Requests: who waits for which run, and what he is told."""

from __future__ import annotations

from noetl.gateway.requests.desk import Requests

__all__ = ("Requests",)

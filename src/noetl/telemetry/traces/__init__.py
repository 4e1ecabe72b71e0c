"""Traces: where a run spent its time, from its caller to the last request of its tools.

Nothing here is imported for its cost alone: a process without `OTEL_EXPORTER_OTLP_ENDPOINT` has no
tracer, and asks for one with a single test.
"""

"""Benchmarks; each prints JSON and none of them is a test."""

"""What should happen next: events, their fold into a state, and the decisions that follow.

Pure: no clock, no randomness, no I/O. Server, local mode, tests and replay use this one engine.
"""

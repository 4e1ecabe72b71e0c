"""The same work on other engines, measured beside ours in one run: `python -m bench.peers`."""

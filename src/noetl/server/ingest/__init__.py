"""Every write to a run: the queue, the turn, the hand-out, and the commit."""

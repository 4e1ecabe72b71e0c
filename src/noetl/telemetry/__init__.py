"""What the processes tell about themselves, and what they must never tell."""

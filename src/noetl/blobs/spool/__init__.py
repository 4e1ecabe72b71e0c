"""Messages that wait until what they need is back: stored one by one, in receive order."""

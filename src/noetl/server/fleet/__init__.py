"""Workers: their claims, their reports, and what answers parked commands."""

"""HTTP, one file per group of what the gateway offers."""

"""Real servers for tests: started on first use, stopped by their own ids."""

"""The contract between processes: wire models, problem bodies, and the one client."""

"""NATS as tools use it: connections by credential, keys, objects, streams."""

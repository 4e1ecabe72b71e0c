"""The watcher: sees how container jobs end on a cluster, and tells the server."""

"""Nodes to closures over a frame, one Python call per node when they are evaluated."""

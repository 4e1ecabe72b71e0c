"""Starting, steering and repeating runs."""

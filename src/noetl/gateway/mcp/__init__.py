"""Playbooks as tools of the Model Context Protocol."""

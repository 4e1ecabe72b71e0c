"""Whole-document rules of playbooks: what only the document as a whole can tell."""

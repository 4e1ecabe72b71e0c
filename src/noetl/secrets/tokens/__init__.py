"""Tokens that are made when they are needed and end by themselves."""

"""A small to-do service."""

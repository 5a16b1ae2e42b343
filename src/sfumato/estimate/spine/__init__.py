"""Nearest possible counts in a tree of places: from the top down, family by family, in real or whole numbers."""

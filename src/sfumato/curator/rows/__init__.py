"""Rows and what is made of them, read by the wall alone: sources, encoding, exact counts."""

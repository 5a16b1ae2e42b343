"""The largest column of an integer strategy, and the largest distance of two."""

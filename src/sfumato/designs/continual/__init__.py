"""What to measure period after period: a lower-triangular strategy over time that a stream keeps in few numbers."""

"""Wing of the wall: the same tables period after period, under one budget debited before the first."""

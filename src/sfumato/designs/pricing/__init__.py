"""What an integer strategy costs: the search for the largest change of its measurement."""

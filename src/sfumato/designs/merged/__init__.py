"""Queries over different attributes answered together, by the cells that they tell apart."""

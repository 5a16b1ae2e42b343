"""Recipes: plan without data, carry out through the curator's doors, and the questions around both."""

"""Strategies, one folder per idea: what is measured and how it is planned, side by side."""

"""The only place that sees data."""

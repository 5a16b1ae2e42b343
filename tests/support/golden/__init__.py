"""Plans of every kind with fixed arguments, and what stays the same of each: `python -m support.golden` in tests/."""

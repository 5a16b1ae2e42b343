"""Certified optima of dense workloads."""

"""Certified optima of dense workloads, and the descent over products of them."""

"""Marginal tables by residuals: one measurement per set of attributes."""

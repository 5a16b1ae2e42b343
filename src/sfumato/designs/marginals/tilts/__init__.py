"""Residuals with tilts for unions of products with other factors than cells, and their bounds."""

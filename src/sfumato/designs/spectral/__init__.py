"""A basis of every attribute, and a noise level of its own for each product of their vectors."""

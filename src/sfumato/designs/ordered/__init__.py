"""Strategies over one ordered attribute of any size: square-root Toeplitz matrices and trees, without dense algebra."""

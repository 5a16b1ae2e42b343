"""Unions of Kronecker products whose factors repeat themselves: a small exact problem, and its strategy."""

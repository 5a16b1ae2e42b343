"""Projection by rungs: what is coarse is held to what it said before anything finer moves."""

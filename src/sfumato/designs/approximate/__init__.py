"""Strategies that trade bias for noise."""

"""Benchmarks of journeys."""

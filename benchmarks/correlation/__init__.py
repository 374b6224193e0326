"""Spark's jobs on traces: are they right, and how fast."""

"""Spark jobs on traces of arrivals. Nothing of the core imports this folder (extra `spark`)."""

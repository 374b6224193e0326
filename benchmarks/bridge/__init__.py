"""The Kafka bridge against a plain loop, and against what both sides can do alone."""

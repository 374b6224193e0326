"""Correlation groups that were inferred from a trace, beside the keys that users give. Pure."""

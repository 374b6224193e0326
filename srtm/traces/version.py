"""The version of a trace's files."""

VERSION = 1
VERSION_KEY = "srtm_trace_version"
"""The key of the version in the file's own metadata, where it is in decimal digits."""

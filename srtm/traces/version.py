"""The version of a trace's files."""

VERSION = 1
VERSION_KEY = "srtm_trace_version"
"""In the file's own metadata, as decimal digits."""

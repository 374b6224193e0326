"""Of which version a trace's file is."""

VERSION = 1
VERSION_KEY = "srtm_trace_version"
"""In the file's own metadata, as decimal digits."""

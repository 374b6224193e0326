"""`srtm stat`."""

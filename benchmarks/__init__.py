"""Every figure and table that SRTM claims: `python -m benchmarks list`."""

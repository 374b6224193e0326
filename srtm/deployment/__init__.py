"""A deployment that runs on this host, as other commands find it: its files and its brokers' doors.

`srtm up` (srtm.deploy) writes it; load, stat, testbed and benchmarks read it.
"""

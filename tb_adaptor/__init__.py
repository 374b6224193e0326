"""The TB Adaptor moves a topic's r and b between brokers as traffic moves (SRTM section 5.4).

It decides and simulates; the distributor carries it out, and has its commands. It imports the
shared folders of `srtm` alone.
"""

"""A topic's contract, its token bucket, and what both mean: waits, excess, SLO. Pure.

Gateway, distributor, adaptor, audit and simulators share these; here is no clock and no I/O.
"""

"""What programs need of the machine that they run on: the clock, timers, files, signals, processes.

It knows nothing of topics and brokers, and imports only `srtm.text`.
"""

"""A placement in virtual time: exact buckets, and brokers as their measured capacity says."""

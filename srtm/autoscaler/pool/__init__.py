"""Pools: consumers of one NSQ channel, as many as its SLO needs."""

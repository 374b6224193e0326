"""Journeys: one latency SLO from publisher to consumer, over the parts that share it."""

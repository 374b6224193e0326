"""What the gateway counts and measures: meters, sketches, deliveries, probes."""

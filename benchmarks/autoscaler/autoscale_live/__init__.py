"""Autoscaled groups on a real Kafka, beside what the simulator says of them."""

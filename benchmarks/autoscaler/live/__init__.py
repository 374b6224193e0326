"""Real groups of consumers on a real Kafka."""

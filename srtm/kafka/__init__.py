"""What all programs that speak to Kafka share: their file's table, and librdkafka's clients."""

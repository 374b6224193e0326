"""How long partitions stand still as they change hands, on a real Kafka."""

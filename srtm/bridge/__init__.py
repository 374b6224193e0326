"""NSQ topics to Kafka and Kafka topics to NSQ, at least once. Only what runs imports Kafka's client."""

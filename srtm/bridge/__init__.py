"""NSQ topics to Kafka and Kafka topics to NSQ, at least once. The core never imports it."""

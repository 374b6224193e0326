"""Groups that are kept current, from a trace that grows or from a Kafka topic of arrivals."""

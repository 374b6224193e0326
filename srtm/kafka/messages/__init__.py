"""Messages of Kafka's protocol that kafka-python does not know: names, types and versions of their
fields, in the form in which it has its own (KIP-932, KIP-1226)."""

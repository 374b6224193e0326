"""The TB Adaptor: traffic that moves between brokers, by each policy."""

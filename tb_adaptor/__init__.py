"""The TB Adaptor moves a topic's r and b between brokers as traffic moves (SRTM section 5.4)."""

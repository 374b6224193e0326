"""The data path: cost, limits, the DRL penalty, stamps of arrival."""

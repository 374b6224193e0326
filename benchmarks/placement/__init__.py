"""The Load Distributor: placements and online fittings."""

"""Traces: what arrived at gateways, as Parquet files. Only a process of its own imports pyarrow."""

"""The commands `srtm distributor`, `topic`, `broker` and `placement`."""

"""The `srtm` command: a table of its sub-commands, each imported when it is called."""

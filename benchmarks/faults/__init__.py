"""Each fault by itself over a testbed of network namespaces: what is lost, what is late."""

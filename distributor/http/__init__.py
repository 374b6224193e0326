"""The HTTP API: doors, bounds, handlers, OpenAPI, metrics, and the process that serves them."""

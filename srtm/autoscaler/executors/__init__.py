"""Who starts and ends consumers: this machine, Kubernetes, or KEDA."""

"""What the control plane costs."""

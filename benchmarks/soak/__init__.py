"""Faults for hours over a whole deployment."""

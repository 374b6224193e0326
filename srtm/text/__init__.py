"""Words between a person and a program: durations, addresses, numbers, tables, errors.

Everybody may import from here; it imports nothing else of the product.
"""

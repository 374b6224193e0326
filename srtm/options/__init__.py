"""A program's options: one class gives its flags, its file's keys, its environment and its help.

Programs import from here; it knows none of them.
"""

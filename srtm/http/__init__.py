"""HTTP as all programs speak it: one client, one bounded server, bearer tokens.

What a program answers is in the program's own folder.
"""

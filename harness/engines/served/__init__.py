"""The model directory that other engines serve, what a run must know of it, and a server that the user starts.

Imported by: harness/engines.
"""

"""The model directory that other engines serve, what a run must know about it, and servers started by the user.

Imported by: harness/engines.
"""

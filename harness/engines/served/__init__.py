"""The model directory that other engines serve, and what a run must know of it.

Imported by: harness/engines.
"""

"""Models, heads and data sets: where they come from, how they are fetched and checked.

Imported by: harness, reports, workloads.
"""

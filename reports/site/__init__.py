"""The static site of stored runs.

Imported by: harness/cli.
"""

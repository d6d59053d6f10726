"""Readers of the result files of other benchmarks.

Imported by: harness/cli.
"""

"""Traces: captured, read, attributed to phases, redacted.

Imported by: harness/cli, harness/experiments, harness/judge, reports.
"""

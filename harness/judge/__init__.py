"""Judging stored runs: comparison, A/B verdict, noise floor, gates.

Imported by: harness/api, harness/cli, harness/experiments, reports.
"""

"""Judges stored runs: comparisons, A/B verdicts, the noise floor, and gates.

Imported by: harness/api, harness/cli, harness/experiments, reports.
"""

"""Figures by commit: points, dated steps, suspects.

Imported by: harness/cli, reports/experiments, reports/site.
"""

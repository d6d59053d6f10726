"""Definitions of figures, derived from stored rows.

Imported by: harness, reports.
"""

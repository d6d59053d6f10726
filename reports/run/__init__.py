"""Tables and reports of a run.

Imported by: harness/api, harness/cli, reports.
"""

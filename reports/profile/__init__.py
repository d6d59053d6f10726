"""Tables, pages and the timeline of a profile.

Imported by: harness/cli, reports.
"""

"""Storage: typed records and run directories, read and written here only.

Imported by: harness, reports.
"""

"""Storage: typed records and run directories, which are read and written only here.

Imported by: harness, reports.
"""

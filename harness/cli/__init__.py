"""The command line: one file per command, which reads options, calls an experiment and prints through reports.

Imported by: harness.
"""

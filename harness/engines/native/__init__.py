"""specbench's own engine behind that interface.

Imported by: harness/cli, harness/quality/certificate, harness/roofline, harness/training.
"""

"""Our engine as several processes, one a GPU: each computes its part of every matrix and makes the same decisions.

Imported by: harness/engines/native, harness/roofline.
"""

"""Training and checking of EAGLE-3 heads.

Imported by: harness/cli, harness/experiments.
"""

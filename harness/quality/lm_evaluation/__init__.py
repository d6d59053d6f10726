"""lm-eval over the arms of a run.

Imported by: harness/cli, harness/experiments.
"""

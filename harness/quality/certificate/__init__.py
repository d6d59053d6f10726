"""The losslessness certificate of an arm.

Imported by: harness/experiments.
"""

"""The loop of the native engine: scheduling, rounds, graphs, sampling, KV pages, status.

Imported by: harness/engines/native, harness/roofline, harness/training, strategies.
"""

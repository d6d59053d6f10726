"""Engines of another Python environment: a child that drives one in process, and the connection to it.

Imported by: harness/engines/sglang, harness/engines/source, harness/engines/vllm, harness/profiling.
"""

"""The code of an engine that is installed from a checkout: its commit, and other revisions next to it.

Imported by: harness/engines/sglang, harness/engines/vllm.
"""

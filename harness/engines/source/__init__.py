"""The code of an engine that is installed from a checkout: which commit it is, and other revisions of it beside it.

Imported by: harness/engines/sglang, harness/engines/vllm.
"""

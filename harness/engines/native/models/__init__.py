"""Llama, Qwen2 and EAGLE heads over a paged KV cache, and the loaders of their checkpoints.

Imported by: harness/engines, harness/quality/certificate, harness/roofline, harness/training, strategies.
"""

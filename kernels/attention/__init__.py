"""Attention over paged keys and values: one backend per file.

Imported by: harness/engines/native/core, harness/engines/native/models, harness/quality/certificate, kernels,
strategies.
"""

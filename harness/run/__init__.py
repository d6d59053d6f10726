"""One run: preparation, blocks, progress, signals.

Imported by: harness/api, harness/cli, harness/experiments, harness/profiling, harness/quality/certificate,
harness/quality/lm_evaluation, harness/training.
"""

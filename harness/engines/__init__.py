"""The interface of engines (`base.py`) and what all engines share.

Imported by: harness/experiments, harness/profiling, harness/quality/certificate, harness/quality/lm_evaluation,
harness/roofline, harness/run.
"""

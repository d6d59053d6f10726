"""The machine's limits, and the ideal speed-up that they allow.

Imported by: harness/experiments, harness/judge, harness/run, reports/run, reports/site.
"""

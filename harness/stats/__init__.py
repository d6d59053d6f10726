"""Mathematics: spreads, intervals, paired tests, power, break-even points.

Imported by: harness/experiments, harness/judge, harness/metrics, harness/store, harness/training, reports.
"""

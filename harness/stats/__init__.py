"""Mathematics: spreads, intervals, paired tests, power, break-even points, limits on latencies.

Imported by: harness, reports.
"""

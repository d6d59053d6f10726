"""Tables of comparisons, sweeps, A/B experiments, certificates, gates and histories.

Imported by: harness/cli, reports.
"""

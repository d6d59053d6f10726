"""User input: options, arms, legal combinations, recipes.

Imported by: harness, reports/experiments, reports/run.
"""

"""What the user asks for: options, arms, recipes, and which combinations are legal.

Imported by: harness, reports/experiments, reports/run.
"""

"""What measures: run, sweep, A/B, power, profile, accuracy, certify and import, all in one kind of session.

Imported by: harness/api, harness/cli.
"""

"""Everything that measures: run, sweep, A/B, power, profile, accuracy, certify and import, all in a `Session`.

Imported by: harness/api, harness/cli.
"""

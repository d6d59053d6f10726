"""Result files of other benchmarks as one run: a reader per tool, a table of formats, one path to the stored run.

Imported by: harness/cli.
"""

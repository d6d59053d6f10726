"""`python -m specbench`."""

from specbench.harness.cli.main import main

main()

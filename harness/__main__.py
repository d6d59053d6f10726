"""`python -m specbench.harness`."""

from specbench.harness.cli.main import main

if __name__ == "__main__":
    main()

"""The command `specbench`, and `python -m specbench`: ready for Ctrl-C before anything that takes time is imported."""

import sys


def main() -> None:
    try:
        from specbench.harness.cli.main import main as command

        command()
    except KeyboardInterrupt:
        print("specbench: interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()

"""The command `specbench`, and `python -m specbench`: ready for Ctrl-C and SIGTERM before anything that takes time
is imported."""

import signal
import sys


def main() -> None:
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    try:
        from specbench.harness.cli.main import main as command

        command()
    except KeyboardInterrupt:
        print("specbench: interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()

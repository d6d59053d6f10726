"""The command `specbench`, and `python -m specbench`: ready for Ctrl-C and SIGTERM before anything that takes time
is imported."""

import os
import signal
import sys


def main() -> None:
    _ready_streams()
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    try:
        from specbench.harness.cli.main import main as command

        command()
    except KeyboardInterrupt:
        print("specbench: interrupted", file=sys.stderr)
        sys.exit(130)


def _ready_streams() -> None:
    """A daemon may start us without them: printing would fail, and the next file that is opened would get their number,
    and whatever libraries print. A character that their encoding lacks is written as its code."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if (stream := getattr(sys, name)) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))
        elif mode == "w" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    main()

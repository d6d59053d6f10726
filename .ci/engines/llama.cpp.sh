#!/usr/bin/env bash
# llama-server and the converter of draft heads, built from the sources that llama-cpp-python carries:
# .ci/engines/llama.cpp.sh DIR. About 15 minutes on two cores; needs a C++ compiler. Everything is pinned in llama.cpp.txt.
set -euo pipefail
python="${ENGINE_PYTHON:-python3}"
folder="$("$python" -c 'import os, sys; print(os.path.abspath(sys.argv[1]))' "${1:?the directory that is made}")"
pins="$(cd "$(dirname "$0")" && pwd)/llama.cpp.txt"
cmp -s "$pins" "$folder/.installed" && exit 0

command -v c++ >/dev/null || { echo "engines: llama.cpp needs a C++ compiler (c++), which is not here" >&2; exit 3; }
rm -rf "$folder"
"$python" -m venv "$folder"
pip() { "$folder/bin/python" -m pip "$@" --quiet --disable-pip-version-check; }
pip install cmake ninja scikit-build-core  # the last one names the package that is downloaded
pip download --no-deps --no-binary :all: --no-build-isolation --require-hashes -r "$pins" --dest "$folder/sources"
tar -xzf "$folder"/sources/llama_cpp_python-*.tar.gz -C "$folder/sources" --strip-components=1
# The converter runs in the Python of specbench, and asks for this beside what is there.
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --target "$folder/packages" sentencepiece
source="$folder/sources/vendor/llama.cpp"
"$folder/bin/cmake" -S "$source" -B "$folder/build" -G Ninja -DCMAKE_MAKE_PROGRAM="$folder/bin/ninja" \
    -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF \
    -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF
nice "$folder/bin/cmake" --build "$folder/build" --target llama-server
cp "$folder/build/bin/llama-server" "$folder/bin/"
cp "$pins" "$folder/.installed"
echo "engines: use it with --engine llama.cpp --engine-python $folder"

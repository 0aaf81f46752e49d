#!/usr/bin/env bash
# Run Python with btfl on an emulated ARM processor: does another make of processor give the same tables?
#
#   benchmarks/emulated_arm.sh FOLDER -m btfl bench --from zoo:hapt-natural --root DATA --workers 1 --out runs/arm
#   python benchmarks/zoo_tables.py runs/arm results/hapt-natural
#
# The first call sets FOLDER up: Debian's Python 3.11 for arm64, the versions of constraints.txt as wheels for aarch64, and
# torch 2.10.0, the newest whose wheel for ARM is without CUDA. Each call copies btfl there and compiles its steps for ARM.
# It needs to be run by root on x86 with Python 3.11 and Debian's qemu-user-static, debootstrap and gcc-aarch64-linux-gnu.
# Everything stays in one process (--workers 1), since processes that Python starts are not emulated. Emulation says
# nothing about speed: office31-cnn-dir0.1, with 12 methods, takes a quarter of an hour.
set -euo pipefail
if [ $# -lt 2 ]; then
  sed -n '2,11s/^# \{0,1\}//p' "$0"
  exit 2
fi
clone=$(cd "$(dirname "$0")/.." && pwd)
for tool in debootstrap qemu-aarch64-static aarch64-linux-gnu-gcc python3.11; do
  command -v "$tool" >/dev/null || { echo "$tool is missing; what is needed is told by $0 without arguments" >&2; exit 2; }
done
mkdir -p "$1"
folder=$(cd "$1" && pwd)
shift
if [ ! -e "$folder/emulated-arm" ] && [ -n "$(ls -A "$folder")" ]; then # what is there is replaced: it must be ours
  echo "$folder holds other things: name a new folder" >&2
  exit 2
fi
touch "$folder/emulated-arm"
packages=(numpy scipy safetensors scikit-learn pillow pydantic typer click rich pandas pyarrow matplotlib jinja2 platformdirs
  pooch filelock pytest hypothesis mpmath torch==2.10.0)

if [ ! -e "$folder/ready" ]; then
  echo "setting up $folder, once" >&2
  rm -rf "$folder/root" "$folder/site"
  # python3 and what it needs are unpacked and not configured: that is enough to run it.
  debootstrap --arch=arm64 --foreign --variant=minbase --include=python3,libgomp1,libstdc++6,libsqlite3-0,libexpat1 \
    bookworm "$folder/root" >"$folder/debootstrap.log"
  for package in "$folder"/root/var/cache/apt/archives/*.deb; do dpkg -x "$package" "$folder/root"; done
  grep -v '^torch==' "$clone/constraints.txt" >"$folder/constraints.txt"
  python3.11 -m pip install --quiet --no-warn-conflicts --only-binary=:all: --target "$folder/site" \
    --constraint "$folder/constraints.txt" --python-version 3.11 --implementation cp \
    $(printf -- '--platform manylinux%s_aarch64 ' _2_34 _2_28 _2_27 _2_26 _2_17 2014) "${packages[@]}"
  touch "$folder/ready"
fi

rm -rf "$folder/src"
cp -r "$clone/src" "$folder/src"
find "$folder/src" -name '_compiled.*.so' -delete
include=$(python3.11 -c 'import sysconfig; print(sysconfig.get_path("include"))')
for source in "$folder"/src/btfl/methods/*/_compiled.c; do # with the flags of hatch_build.py
  aarch64-linux-gnu-gcc -std=c11 -O3 -g0 -ffp-contract=off -fno-trapping-math -fno-math-errno -fPIC -shared -I"$include" \
    "$source" -o "${source%.c}.abi3.so"
done
export PYTHONPATH="$folder/src:$folder/site" OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
exec qemu-aarch64-static -cpu cortex-a76 -L "$folder/root" "$folder/root/usr/bin/python3.11" "$@"

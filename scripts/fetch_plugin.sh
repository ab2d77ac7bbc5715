#!/usr/bin/env bash
# Fetches XLA's plugin for CPUs, and the header of its interface, into build/pjrt, where the library finds it. Does
# nothing when it is there. Without a network, or on another processor, tests that need XLA are skipped: no error.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=build/pjrt
requirement="xla-cpu-pjrt==0.0.1"
case $(uname -m) in
  aarch64) wheel=8f613be6e891858f40d64f9799319502fff42689661944fc18a6ffd8210b30c9 ;;
  x86_64) wheel=55837b6b7b47daa717f2d9a5a03563ea0ceaa338d06a81a1e2d3f060d960decc ;;
  *) wheel= ;;
esac

give_up() {
  echo "fetch_plugin: $1; tests that need XLA will be skipped" >&2
  exit 0
}

[[ -n $wheel ]] || give_up "$requirement has nothing for a processor like $(uname -m)"

# The name says which wheel it was, the lines what came out of it.
sums=$wheel.sha256
if (cd "$folder" 2>/dev/null && sha256sum --check --status "$sums" 2>/dev/null); then
  exit 0
fi
python3 -m pip --version >/dev/null 2>&1 || give_up "there is no pip; install python3-pip"

mkdir -p build
temporary=$(mktemp -d build/pjrt.XXXXXX)
trap 'rm -rf "$temporary"' EXIT
echo "$requirement --hash=sha256:$wheel" >"$temporary/requirements.txt"
python3 -m pip download --quiet --retries 2 --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
  --requirement "$temporary/requirements.txt" --dest "$temporary" >"$temporary/log" 2>&1 ||
  give_up "$requirement could not be fetched ($(grep -m 1 ERROR "$temporary/log"))"

python3 -m zipfile -e "$temporary"/*.whl "$temporary/wheel"
mkdir "$temporary/pjrt"
mv "$temporary/wheel/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so" \
  "$temporary/wheel/xla_plugins/xla_cpu_pjrt/include/pjrt_c_api.h" "$temporary/pjrt"
(cd "$temporary/pjrt" && sha256sum xla_cpu_pjrt.so pjrt_c_api.h >"$sums")

# Other plugins in the folder stay.
mkdir -p "$folder"
mv "$temporary"/pjrt/* "$folder"
chmod go-w "$folder" "$folder"/*  # the library does not load what others may write
echo "fetch_plugin: $folder/xla_cpu_pjrt.so"

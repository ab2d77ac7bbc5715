#!/usr/bin/env bash
# Installs what building, testing and checking need, on Debian 12 or a relative of it. Does nothing when all is there.
# With CMAKE_PREFIX_PATH set, LibTorch is expected there and not installed; without apt it is all left to the user.
set -euo pipefail

if ! command -v apt-get >/dev/null; then
  echo "setup: no apt-get here; install a C++20 compiler, CMake, Ninja, LibTorch and OpenBLAS yourself" >&2
  exit 0
fi

# libtorch-dev alone brings the reference BLAS, which is ten times slower than OpenBLAS.
packages=(
  build-essential cmake ninja-build ccache git python3
  libgtest-dev libgmock-dev nlohmann-json3-dev libcli11-dev libtomlplusplus-dev
  clang clang-format libclang-rt-dev shellcheck
  libprotozero-dev zlib1g-dev libarchive-dev libjpeg62-turbo-dev libpng-dev libcurl4-openssl-dev
  libgloo-dev libopenmpi-dev openmpi-bin libssl-dev iproute2
)
if [[ -z ${CMAKE_PREFIX_PATH:-} ]]; then
  packages+=(libtorch-dev libopenblas0-pthread)
fi
# What fetches XLA's plugin; any pip will do.
python3 -m pip --version >/dev/null 2>&1 || packages+=(python3-pip)

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $state == installed ]] || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  command -v sudo >/dev/null || {
    echo "[setup] packages are missing and need root: ${missing[*]}; run this as root, or install sudo" >&2
    exit 1
  }
  as_root=(sudo)
fi
echo "setup: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}"

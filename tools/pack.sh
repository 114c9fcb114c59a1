#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Packs what a GPU machine needs into one folder: programs, libraries, end-to-end and bench programs,
# stripped. There, without building anything:
#   OPENMPS_BUILD=FOLDER ./dev gpu-test
#   OPENMPS_BUILD=FOLDER OPENMPS_PREBUILT=1 ./dev bench smoke
#   OPENMPS_BUILD=FOLDER OPENMPS_PREBUILT=1 ./dev experiments
# usage: tools/pack.sh FOLDER
set -euo pipefail
folder=$(realpath -m "${1:?usage: tools/pack.sh FOLDER}")
cd "${OPENMPS_BUILD:-$(dirname "$0")/../build}"
rm -rf "$folder"
mkdir -p "$folder"/{bin,lib/openmps/{cupti,nvml},lib/softgpu,tests/e2e,tests/gpu,bench}

copy() {  # copy TARGET_FOLDER FILES: executables and libraries only, without symbols
  local to=$1 file
  shift
  for file in "$@"; do
    [ -f "$file" ] && [ -x "$file" ] || continue
    strip -o "$folder/$to/$(basename "$file")" "$file"
  done
}
copy bin bin/*
copy lib/openmps lib/openmps/libcuda.so.1
copy lib/openmps/nvml lib/openmps/nvml/libnvidia-ml.so.1
copy lib/openmps/cupti lib/openmps/cupti/*
copy lib/softgpu lib/softgpu/libcuda.so.1 lib/softgpu/libnvidia-ml.so.1
cp -a lib/openmps/compat "$folder/lib/openmps"  # links
copy tests/e2e tests/e2e/*
copy tests/gpu tests/gpu/*
copy bench bench/*
du -sh "$folder"

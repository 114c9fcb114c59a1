#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes openmps, openmps-softgpu and openmps-doc as .deb files in the folder OUT, by debhelper, of the
# programs in a build tree: OPENMPS_BUILD, or build/. OPENMPS_PACKAGE_VERSION is the packages' version
# if it is not the project's.
# usage: tools/make_packages.sh OUT
set -euo pipefail
out=$(realpath -m "${1:?usage: tools/make_packages.sh OUT}")
cd "$(dirname "$(readlink -f "$0")")/.."
export OPENMPS_BUILD
OPENMPS_BUILD=$(realpath "${OPENMPS_BUILD:-build}")
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

# debhelper wants debian/ at the root of what it packages, and writes there.
mkdir "$stage/openmps"
cp -r packaging/debian docs README.md README.zh-CN.md "$stage/openmps"
cd "$stage/openmps"
if [ -n "${OPENMPS_PACKAGE_VERSION:-}" ]; then
  sed -i "1s/([^)]*)/($OPENMPS_PACKAGE_VERSION)/" debian/changelog
fi
# The build tree has what Build-Depends names.
dpkg-buildpackage --build=binary --no-sign --no-check-builddeps >"$stage/log" 2>&1 || {
  cat "$stage/log" >&2
  exit 1
}
mkdir -p "$out"
mv ../*.deb "$out"

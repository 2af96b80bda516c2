#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Tries the files of a release in empty roots of Debian, which have no compiler: try_roots.sh FOLDER [SUITE …]. Needs root
# and debootstrap. The archive runs without network. Wheels are installed by each root's own Python, if one fits.
set -euo pipefail
dist=$(realpath "$1")
shift
[ $# -gt 0 ] || set -- bullseye bookworm trixie
work=$(mktemp -d)
trap 'umount "$work"/*/proc "$work"/*/dev 2>/dev/null || true; rm -rf --one-file-system "$work"' EXIT

game() { # the folder of the programs: a match of two games
  printf '"%s/wavefront" match --player name=a,nodes=20 --player name=b,nodes=10 --games 2 --max-moves 60 --output /tmp/games.pgn' "$1"
}

for suite; do
  root=$work/$suite
  echo "== $suite"
  debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates "$suite" "$root" >"$work/log" 2>&1 || {
    tail -5 "$work/log"
    exit 1
  }
  mount --bind /proc "$root/proc"
  mount --bind /dev "$root/dev"
  cp "$dist"/* "$root/srv"
  cp /etc/resolv.conf "$root/etc"
  cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs"
  inside() { chroot "$root" env -i PATH=/usr/bin:/bin HOME=/root "$@"; }
  inside sh -c 'ldd --version | head -1; python3 --version; ! command -v cc g++ gcc clang'
  zstd -dc "$dist"/*.tar.zst | tar -x -C "$root/opt"
  mv "$root"/opt/wavefront-* "$root/opt/wavefront"
  echo "-- archive, without network"
  unshare --net chroot "$root" env -i PATH=/usr/bin:/bin HOME=/root /opt/wavefront/wavefront self-test
  unshare --net chroot "$root" env -i PATH=/usr/bin:/bin HOME=/root sh -c "cd /tmp && $(game /opt/wavefront)"
  version=$(inside python3 -c 'import sys; print(sys.version_info.minor)')
  if [ "$version" -lt 11 ]; then
    echo "-- no wheel: Python 3.$version is too old"
    continue
  fi
  echo "-- wheel, Python 3.$version"
  settings=$(env | grep -E '^(PIP_|https?_proxy|HTTPS?_PROXY|SSL_CERT_FILE)' | tr '\n' ' ' || true)
  # shellcheck disable=SC2086
  inside $settings PIP_FIND_LINKS=/srv sh -c 'python3 -m venv /root/venv && /root/venv/bin/pip install -q "wavefront-chess==$(
    ls /srv/*.tar.gz | sed "s/.*-\(.*\)\.tar\.gz/\1/")"'
  inside /root/venv/bin/wavefront self-test
  inside sh -c "cd /tmp && rm -f games.* && $(game /root/venv/bin)"
done

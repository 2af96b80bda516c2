#!/bin/sh
# SPDX-License-Identifier: GPL-3.0-or-later
# Installs the checkout and writes a program for OpenBench: build.sh NAME [NETWORK].
# OpenBench moves the program and deletes the sources, so the packages are installed in the user's cache.
set -eu
name=$1 network=${2:-}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
state=$(cd "$root" && find engine evaluator protocol training CMakeLists.txt pyproject.toml wavefront_launcher.py scripts/wavefront.sh \
  -type f ! -path '*/__pycache__/*' | LC_ALL=C sort | xargs sha256sum | sha256sum | cut -c 1-16)
folder=${XDG_CACHE_HOME:-$HOME/.cache}/wavefront/openbench/$state
if [ ! -e "$folder/installed" ]; then
  rm -rf "$folder"
  python3 -m venv "$folder"
  "$folder/bin/python" -m pip install --quiet "$root"
  touch "$folder/installed"
fi
weights=
if [ -n "$network" ]; then
  cp "$network" "$folder/"
  weights="--weights '$folder/$(basename "$network")'"
fi
cat >"$name" <<END
#!/bin/sh
if [ "\${1:-}" = bench ]; then
  shift
  exec "$folder/bin/wavefront" bench --in-process --nodes 100000 --openbench "\$@"
fi
exec "$folder/bin/wavefront" $weights "\$@"
END
chmod +x "$name"

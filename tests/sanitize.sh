#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Builds the cores with AddressSanitizer and UndefinedBehaviorSanitizer and runs its tests on it. Linux with GCC and
# the test extra installed. Arguments go to pytest; without any, the tests of the cores are run.
#
#     tests/sanitize.sh [PYTEST ARGUMENTS]
set -euo pipefail
cd "$(dirname "$0")/.."
site="$PWD/build/sanitize/site"
compiler="${CXX:-g++}"

python -m pip install --quiet --no-deps --upgrade --target "$site" \
  -Cbuild-dir=build/sanitize/cmake -Ccmake.define.WAVEFRONT_WERROR=OFF \
  -Ccmake.define.WAVEFRONT_SANITIZE=address,undefined .

# -S keeps the hook of an editable install out, so that the core is found in $site; other packages come by path.
packages=$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
[ $# -gt 0 ] || set -- -q tests/engine/core tests/evaluator/core tests/protocol/core
LD_PRELOAD="$("$compiler" -print-file-name=libasan.so) $("$compiler" -print-file-name=libstdc++.so)" \
  ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
  PYTHONPATH="$site:$packages" python -S -m pytest -p no:cacheprovider "$@"

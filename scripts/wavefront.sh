#!/bin/sh
# SPDX-License-Identifier: GPL-3.0-or-later
# Installed as `wavefront`, `wavefront-evaluator` and `wavefront-training`: starts the program of that name.
#
# A child of a GUI inherits its environment, which the dynamic linker and the interpreter read before our code runs.
# So remove variables that break an interpreter or change its output, and the folders of an AppImage.

unset PYTHONHOME PYTHONPLATLIBDIR PYTHONEXECUTABLE PYTHONINSPECT PYTHONWARNINGS PYTHONIOENCODING PYTHONUTF8 \
  PYTHONHASHSEED PYTHONMALLOC PYTHONTRACEMALLOC PYTHONINTMAXSTRDIGITS PYTHONOPTIMIZE PYTHONCASEOK \
  PYTHON_GIL PYTHON_CPU_COUNT PYTHON_CONTEXT_AWARE_WARNINGS PYTHON_THREAD_INHERIT_CONTEXT

# Sets $kept to a path's folders outside an AppImage.
without_appimage() {
  kept=
  set -f
  IFS=:
  for folder in $1; do
    case $folder/ in
      "${APPDIR:-/dev/null}"/* | */.mount_*/*) ;;
      *) kept=${kept:+$kept:}$folder ;;
    esac
  done
  unset IFS
  set +f
}

if [ -n "${LD_LIBRARY_PATH-}" ]; then
  without_appimage "$LD_LIBRARY_PATH"
  export LD_LIBRARY_PATH="$kept"
  [ -n "$kept" ] || unset LD_LIBRARY_PATH
fi
if [ -n "${PYTHONPATH-}" ]; then
  without_appimage "$PYTHONPATH"
  export PYTHONPATH="$kept"
fi

script=$0
while [ -L "$script" ]; do
  target=$(readlink "$script")
  case $target in
    /*) script=$target ;;
    *) script=${script%/*}/$target ;;
  esac
done
case $script in */*) bin=${script%/*} ;; *) bin=. ;; esac

# The Python with this program's packages: in the same folder or, for `pip install --user`, on the path.
python=python3
for found in "$bin"/../lib*/python3.*/*-packages/wavefront_chess-*.dist-info; do
  [ -d "$found" ] || continue
  python=${found#"$bin"/../lib*/}
  python=${python%%/*}
done
[ -x "$bin/$python" ] && python=$bin/$python

case ${script##*/} in
  wavefront-evaluator) program=evaluator ;;
  wavefront-training) program=training ;;
  *) program=engine ;;
esac
exec "$python" -P -m wavefront_launcher "$program" "$@"

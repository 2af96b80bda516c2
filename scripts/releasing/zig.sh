#!/bin/sh
# SPDX-License-Identifier: GPL-3.0-or-later
# Runs the clang of the package ziglang as `cc` or, by its name `c++`, as C++ compiler: for the glibc of manylinux_2_28, or
# for RELEASE_TARGET. Zig spells the levels of x86-64 with underscores.
case ${0##*/} in *++) mode=c++ ;; *ar) mode=ar ;; *ranlib) mode=ranlib ;; *) mode=cc ;; esac
case $mode in *a*) exec "$RELEASE_PYTHON" -m ziglang $mode "$@" ;; esac
for word; do
  shift
  case $word in -march=x86-64*) word=-march=$(echo "${word#-march=}" | tr - _) ;; esac
  set -- "$@" "$word"
done
exec "$RELEASE_PYTHON" -m ziglang $mode -target "${RELEASE_TARGET:-x86_64-linux-gnu.2.28}" -Wno-error=date-time "$@"

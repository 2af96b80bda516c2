#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Builds a relocatable CPython for glibc 2.28: python.sh VERSION FOLDER, with CC and CXX set.
# The source is Debian's, as apt verifies it. The libraries are Debian 12's static ones: they know no later glibc.
# All extension modules are in the program, which needs nothing but glibc.
set -euo pipefail
version=$1 folder=$(realpath -m "$2")
mkdir -p "$folder.work"
cd "$folder.work"

mkdir -p lists/partial cache/archives/partial libraries ssl/lib ssl/include build
key=/usr/share/keyrings/debian-archive-keyring.gpg
{
  printf 'deb-src [signed-by=%s] http://deb.debian.org/debian %s main\n' $key trixie $key forky $key sid
  printf 'deb [signed-by=%s] http://deb.debian.org/debian bookworm main\n' $key
} >sources.list
apt=(-qq -o "Dir::Etc::sourcelist=$PWD/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$PWD/lists"
  -o "Dir::Cache=$PWD/cache" -o "APT::Sandbox::User=$(id -un)")
apt-get "${apt[@]}" update
# The latest that the mirror has: it may list a version whose files are not there yet.
apt-cache "${apt[@]}" showsrc --only-source "python$version" | sed -n 's/^Version: //p' | sort -ruV >versions
while read -r each; do
  apt-get "${apt[@]}" source --download-only "python$version=$each" && break
done <versions
apt-get "${apt[@]}" download zlib1g-dev libffi-dev libbz2-dev liblzma-dev libssl-dev
# Without Debian's patches, which install packages elsewhere.
mkdir -p source && tar -xf "python${version}"_*.orig.tar.xz --strip-components=1 -C source
for package in *.deb; do dpkg-deb -x "$package" libraries; done
lib=$PWD/libraries/usr/lib/x86_64-linux-gnu include=$PWD/libraries/usr/include
cp "$lib"/libssl.a "$lib"/libcrypto.a ssl/lib
cp -r "$include/openssl" ssl/include
cp "$include/x86_64-linux-gnu/openssl"/* ssl/include/openssl

cd build
flags="-I$include -I$include/x86_64-linux-gnu"
absent=(py_cv_module_{_tkinter,_curses,_curses_panel,_dbm,_gdbm,readline,_sqlite3,_uuid}=n/a)
env PKG_CONFIG=false CPPFLAGS="$flags" MODULE_BUILDTYPE=static \
  ZLIB_CFLAGS="$flags" ZLIB_LIBS="$lib/libz.a" BZIP2_CFLAGS="$flags" BZIP2_LIBS="$lib/libbz2.a" \
  LIBLZMA_CFLAGS="$flags" LIBLZMA_LIBS="$lib/liblzma.a" LIBFFI_CFLAGS="$flags" LIBFFI_LIBS="$lib/libffi_pic.a" \
  "${absent[@]}" \
  ../source/configure --quiet --prefix="$folder" --disable-test-modules --without-ensurepip --without-readline \
  --with-openssl="$folder.work/ssl"
make --silent "-j$(nproc)"
make --silent install

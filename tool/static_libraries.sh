#!/bin/sh
# Build the C libraries of third_party/libraries.txt as static, position-independent ones.
#
# usage: CC=COMPILER AR=AR sh tool/static_libraries.sh SOURCES DEST
#
# SOURCES is what tool/fetch_sources.py wrote. DEST gets include/, lib/lib*.a and licenses/NAME, the licence of
# each. Options are those of Debian's packages, as far as they decide what the library computes: pcre2 with Unicode and
# its just-in-time compiler, of 8-bit units only; jansson with long long, and keys hashed from /dev/urandom.
set -eu
[ $# -eq 2 ] || { echo 'usage: CC=COMPILER AR=AR sh tool/static_libraries.sh SOURCES DEST' >&2; exit 2; }
: "${CC:?names the compiler}" "${AR:=ar}"
export CC
sources=$(cd "$1" && pwd)
rm -rf "$2"
mkdir -p "$2/include" "$2/lib" "$2/licenses" "$2/objects"
dest=$(cd "$2" && pwd)

# compile NAME FLAG... -- FILE...: lib/libNAME.a
compile() {
    name=$1
    shift
    flags='-O3 -g0 -fPIC -w'
    while [ "$1" != -- ]; do
        flags="$flags $1"
        shift
    done
    shift
    mkdir -p "$dest/objects/$name"
    # shellcheck disable=SC2016 # for the inner shell; FLAGS are words
    printf '%s\n' "$@" | FLAGS=$flags OBJECTS=$dest/objects/$name xargs -P "$(nproc)" -I '{}' \
        sh -c '$CC $FLAGS -c -o "$OBJECTS/$(basename "$1" .c).o" "$1"' sh '{}'
    "$AR" rcsD "$dest/lib/lib$name.a" "$dest/objects/$name"/*.o
}

cd "$sources/jansson"
sed -e 's/@json_inline@/inline/; s/@json_have_[a-z_]*@/1/' src/jansson_config.h.in >"$dest/include/jansson_config.h"
cp src/jansson.h "$dest/include/"
for part in ENDIAN_H FCNTL_H SCHED_H UNISTD_H SYS_PARAM_H SYS_STAT_H SYS_TIME_H SYS_TYPES_H STDINT_H LOCALE_H CLOSE \
    GETPID GETTIMEOFDAY LOCALECONV OPEN READ SCHED_YIELD STRERROR STRTOLL ATOMIC_BUILTINS SYNC_BUILTINS; do
    echo "#define HAVE_$part 1"
done >src/jansson_private_config.h
printf '#define USE_URANDOM 1\n#define INITIAL_HASHTABLE_ORDER 3\n' >>src/jansson_private_config.h
compile jansson -DHAVE_CONFIG_H -Isrc "-I$dest/include" -- src/*.c
cp LICENSE "$dest/licenses/jansson"

cd "$sources/pcre2"
cp src/pcre2.h.generic src/pcre2.h
cp src/config.h.generic src/config.h
cp src/pcre2_chartables.c.dist src/pcre2_chartables.c
files=$(sed -n '/^ (4)/,/^ (5)/s/^  *\(pcre2_[a-z_0-9]*\.c\)$/src\/\1/p' NON-AUTOTOOLS-BUILD)
# shellcheck disable=SC2086
compile pcre2-8 -Isrc -DHAVE_CONFIG_H -DPCRE2_STATIC -DPCRE2_CODE_UNIT_WIDTH=8 -DSUPPORT_PCRE2_8 -DSUPPORT_UNICODE \
    -DSUPPORT_JIT -DHAVE_MEMMOVE -DHAVE_STRERROR -DHAVE_STDINT_H -DHAVE_BUILTIN_MUL_OVERFLOW -- $files
cp src/pcre2.h "$dest/include/"
{ cat LICENCE.md; sed -n '/Copyright/,/\*\//p' deps/sljit/sljit_src/sljitLir.h; } >"$dest/licenses/pcre2"

cd "$sources/liburing"
./configure --cc="$CC" >/dev/null
compile uring -D_GNU_SOURCE -DLIBURING_INTERNAL -Isrc/include -include config-host.h -fno-stack-protector -- \
    src/setup.c src/queue.c src/register.c src/syscall.c
cp -r src/include/liburing.h src/include/liburing "$dest/include/"
cp LICENSE "$dest/licenses/liburing"

cd "$sources/utf8proc"
compile utf8proc -DUTF8PROC_STATIC -- utf8proc.c
cp utf8proc.h "$dest/include/"
cp LICENSE.md "$dest/licenses/utf8proc"

cd "$sources/xxhash"
compile xxhash -- xxhash.c
cp xxhash.h xxh3.h "$dest/include/"
cp LICENSE "$dest/licenses/xxhash"

# Only decompression is used of zlib and zstd.
cd "$sources/zlib"
compile z -DHAVE_HIDDEN -DHAVE_UNISTD_H -D_LARGEFILE64_SOURCE=1 -- adler32.c crc32.c inffast.c inflate.c inftrees.c zutil.c
cp zlib.h zconf.h "$dest/include/"
cp LICENSE "$dest/licenses/zlib"

cd "$sources/zstd"
compile zstd -Ilib -DZSTD_DISABLE_ASM=1 -DZSTD_LEGACY_SUPPORT=0 -DXXH_NAMESPACE=ZSTD_ -- lib/common/*.c lib/decompress/*.c
cp lib/zstd.h lib/zstd_errors.h "$dest/include/"
cp LICENSE "$dest/licenses/zstd"
rm -rf "$dest/objects"

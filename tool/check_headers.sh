#!/bin/sh
# Check that every header compiles alone, and twice in one file: all of src/ and include/ as C11, the public headers also
# as C99 and C++17, the kernel header also as C++17 (CUDA sources include it).
#
# usage: [CC=gcc] [CXX=g++] tool/check_headers.sh
set -u
cd "$(dirname "$0")/.." || exit 2
CC=${CC:-gcc}
CXX=${CXX:-g++}
warn='-fopenmp-simd -Wall -Wextra -Wpedantic -Wshadow -Wundef -Wconversion -Werror'
bad=0

# check HEADER COMPILER LANGUAGE STANDARD [FLAGS]
check() {
    header=$1 compiler=$2 language=$3 standard=$4
    shift 4
    # The declaration keeps a header of macros alone from being an empty translation unit.
    if ! printf '#include "%s"\n#include "%s"\nextern int not_empty;\n' "$header" "$header" |
        $compiler -x "$language" -std="$standard" -fsyntax-only $warn -Iinclude -Isrc -D_GNU_SOURCE "$@" -; then
        echo "$(ls include/$header src/$header 2>/dev/null):1: does not compile alone as $standard"
        bad=1
    fi
}

for path in $(find include src -name '*.h' | sort); do
    case $path in include/patrickstar_mpi.h) continue ;; esac # with the compilers of MPIs: test/cli/test_mpi_groups.sh
    # What is compiled once for each instruction set is checked for one of them.
    if grep -q 'PS_ISA\|or the files in isa/' "$path"; then isa='-DPS_ISA=portable -DPS_ISA_portable=1'; else isa=; fi
    check "${path#*/}" "$CC" c c11 -DPS_DEBUG=3 $isa
done
for name in $(cd include && ls *.h | grep -v _mpi); do
    check $name "$CC" c c99
    check $name "$CXX" c++ c++17
done
check patrickstar.hpp "$CXX" c++ c++17
check patrickstar.hpp "$CXX" c++ c++17 -fno-exceptions
check kernel/kernel.h "$CXX" c++ c++17 -DPS_DEBUG=3
exit $bad

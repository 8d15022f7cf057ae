#!/bin/sh
# Plug-ins are code: they are loaded from where the program or the library really is, never from the folder that one works in.
# usage: test/cli/test_plugin_search.sh BUILD_FOLDER
set -u
build=$1
. test/cli/cli_lib.sh
case $build in *address* | *undefined* | *thread*) skip "foreign code in a process of a sanitizer" ;; esac
. test/cli/mpi_env.sh
unset PATRICKSTAR_PLUGIN_PATH

# A stranger's folder: plug-ins that tell when they are loaded, and a file with the program's name.
mkdir -p "$work/stranger/patrickstar" "$work/lib/patrickstar" "$work/bin"
cat >"$work/stranger.c" <<EOT
#include <fcntl.h>
#include <unistd.h>
__attribute__((constructor)) static void loaded(void) { close(open("$work/loaded", O_CREAT | O_WRONLY, 0666)); }
EOT
${CC:-gcc} -shared -fPIC -o "$work/stranger/libpatrickstar_openmpi.so" "$work/stranger.c" || fail "the stranger's plug-in"
cp "$work/stranger/libpatrickstar_openmpi.so" "$work/stranger/libpatrickstar_mpich.so"
cp "$work/stranger/"*.so "$work/stranger/patrickstar/"
cp "$work/stranger/"*.so "$work/lib/patrickstar/"
: >"$work/stranger/pstar"

# start PATH_FOLDER FOLDER: in FOLDER, as a launcher does that has started two ranks, pstar being found through PATH
start() {
    rm -f "$work/loaded"
    (cd "$2" && PATH=$1:$PATH OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 timeout 60 pstar eval "$work/tiny.json") \
        >"$work/out" 2>"$work/err"
    rc=$?
    [ $rc -ne 0 ] || fail "status 0"
}

# Without plug-ins of its own, so that all places are searched.
cp "$pstar" "$work/bin/pstar"
rm -r "$work/lib"
start "$work/bin" "$work/stranger"
[ ! -e "$work/loaded" ] || fail "a plug-in of the working folder was loaded"
says err "is in none of: $work/bin"
# With a relative PATH too.
(cd "$work/stranger" && PATH=../bin:$PATH OMPI_COMM_WORLD_SIZE=2 pstar eval "$work/tiny.json") >"$work/out" 2>"$work/err"
[ ! -e "$work/loaded" ] || fail "a plug-in of the working folder was loaded"
says err "is in none of: $work/bin"
# They are found next to the program, and where it is installed: seen by the stranger's being loaded from there.
for folder in "$work/bin" "$work/bin/patrickstar" "$work/lib/patrickstar"; do
    mkdir -p "$folder" && cp "$work/stranger/libpatrickstar_openmpi.so" "$folder/"
    start "$work/bin" "$work/stranger"
    [ -e "$work/loaded" ] || fail "not loaded from $folder"
    rm "$folder/libpatrickstar_openmpi.so"
done
exit 0

#!/bin/sh
# What `make install` puts down is enough to build and run doc/c.md's program with pkg-config, shared and static, as C and as C++, what
# trains, evaluates and generates in pstar with another main, and to build the examples; and `make uninstall` takes all of it away.
#
# usage: test/cli/test_install.sh BUILD_FOLDER. A sanitizer's build is not for installing: skipped.
set -eu
. test/cli/skip_lib.sh
variant=${1##*/}
case $variant in *address* | *undefined* | *thread*) skip "programs that do not know of sanitizers" ;; esac
case $variant in *minimal*) skip "the shared library, which such a build has not" ;; esac
cc=${variant%%-d*}
debug=${variant##*-d}
werror=
case $debug in *-werror) werror=1 debug=${debug%-werror} ;; esac
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# Not as a part of the make that may run this test: its flags and job server are not ours.
unset MAKEFLAGS MFLAGS MAKELEVEL
house() { make -s DEPS=0 CC="$cc" DEBUG="$debug" WERROR="$werror" DESTDIR="$tmp/root" PREFIX=/opt/patrickstar "$@"; }
house install
lib=$tmp/root/opt/patrickstar/lib
for file in bin/pstar include/patrickstar.h include/patrickstar.hpp include/patrickstar_comm.h include/patrickstar_data.h include/patrickstar_mpi.h include/patrickstar_own.h share/man/man1/pstar.1 share/man/man1/pstar-train.1 \
    share/bash-completion/completions/pstar share/zsh/site-functions/_pstar lib/libpatrickstar.a lib/libpatrickstar_data.a lib/pkgconfig/patrickstar.pc lib/pkgconfig/patrickstar_data.pc \
    share/doc/patrickstar/README.md share/doc/patrickstar/config.md; do
    [ -s "$tmp/root/opt/patrickstar/$file" ] || { echo "$file is not installed"; exit 1; }
done
for mpi in ${MPI-openmpi}; do
    [ -s "$lib/patrickstar/libpatrickstar_$mpi.so" ] || { echo "the plug-in for $mpi is not installed"; exit 1; }
done
for name in libpatrickstar libpatrickstar_data; do
    [ "$(readlink "$lib/$name.so")" = $name.so.0.2 ] || { echo "no link $name.so"; exit 1; }
done
! readelf -d "$lib/libpatrickstar.so" | grep -E 'pcre|utf8proc|libz' || { echo "libpatrickstar needs what only tokenizers need"; exit 1; }

sed -n '/^```c$/,/^```$/{/^```/d;p}' doc/c.md >"$tmp/example.c"
export PKG_CONFIG_PATH="$lib/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$tmp/root"
# shellcheck disable=SC2046 # flags are words
{
    pkg-config --exists 'patrickstar >= 0.2'
    $cc -o "$tmp/shared" "$tmp/example.c" $(pkg-config --cflags --libs patrickstar)
    readelf -d "$tmp/shared" | grep -q 'NEEDED.*\[libpatrickstar\.so\.0\.2\]' || { echo "not linked by soname"; exit 1; }
    LD_LIBRARY_PATH=$lib "$tmp/shared"

    # what trains, evaluates and generates in pstar, away from the sources, with another program's main: nothing else of them is
    # seen, and nothing else linked
    mkdir "$tmp/program"
    cp cli/train/*.[ch] "$tmp/program"
    cat >"$tmp/program/main.c" <<'END'
#include <stdio.h>
#include <string.h>
#include "commands.h"
#include "program.h"
int program_exit_code(ps_status st)
{
    return st == PS_OK ? 0 : st == PS_EIO ? EXIT_IO : EXIT_OTHER;
}
int program_report(const char *command, ps_status st)
{
    if (st != PS_OK) fprintf(stderr, "%s: %s\n", command, ps_last_error());
    return program_exit_code(st);
}
ps_status program_report_machine(ps_config *config, ps_comm *comm, int n_ranks)
{
    (void)comm, (void)n_ranks;
    return ps_config_set(config, "hardware", "none");
}
void program_find_change(const ps_config *config, const ps_memory_info *memory, int n_ranks, double seconds, program_change *out)
{
    (void)config, (void)memory, (void)n_ranks, (void)seconds;
    *out = (program_change){0};
}
int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "train") == 0) return cmd_train(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "eval") == 0) return cmd_eval(argc - 1, argv + 1);
    return argc > 1 && strcmp(argv[1], "generate") == 0 ? cmd_generate(argc - 1, argv + 1) : EXIT_INPUT;
}
END
    (cd "$tmp/program" && $cc -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -o program ./*.c $(pkg-config --cflags --libs patrickstar_data) \
        -ljansson -lxxhash -lm -lpthread) || { echo "cli/train needs more than what is installed, and a main"; exit 1; }
    head -c 30000 data/text/moby-dick.txt >"$tmp/program/text.txt"
    cat >"$tmp/program/tiny.json" <<END
{"train_micro_batch_size_per_gpu": 2, "model": {"n_positions": 16, "n_embd": 32, "n_layer": 1, "n_head": 2},
 "data": {"train": "$tmp/program/text.txt", "tokenizer": "$PWD/data/gpt2", "validation_split": 0.1}, "memory": {"device": "100MB", "host": 0, "disk": 0},
 "train": {"steps": 2, "save_interval": 1, "threads": 1, "output_dir": "$tmp/program/run"}}
END
    for words in train 'train --resume train.steps=3' 'eval --steps 2' 'generate --prompt whale --tokens 3'; do
        (cd "$tmp/program" && LD_LIBRARY_PATH=$lib ./program ${words%% *} tiny.json ${words#"${words%% *}"}) >"$tmp/says" 2>&1 ||
            { cat "$tmp/says"; echo "$words of a program that is not pstar"; exit 1; }
    done
    for file in examples/*.c; do
        compiler=$cc
        case $file in examples/two_models.c) compiler=$(command -v mpicc) || continue ;; esac
        $compiler -std=c11 -Wall -Wextra -Werror -o "$tmp/example_program" "$file" $(pkg-config --cflags --libs patrickstar) -lm
    done
    cxx=$(echo "$cc" | sed 's/gcc/g++/; s/clang$/clang++/')
    if command -v "$cxx" >/dev/null; then
        cat >"$tmp/data.cpp" <<'END'
#include <cstdio>
#include <patrickstar_data.h>
int main()
{
    ps_config *config = nullptr;
    ps_data_loader *feed = nullptr;
    ps_batch batch{};
    batch.struct_size = sizeof batch;
    int major = -1;
    if (ps_config_parse("{\"data\": {\"train\": \"/nowhere.bin\"}}", "options", &config) != PS_OK) return 1;
    const ps_status st = ps_data_loader_from_config(config, nullptr, &feed);
    std::printf("%s: %s\n", ps_version(&major, nullptr, nullptr), ps_last_error());
    ps_config_destroy(config);
    return st == PS_EIO && major == PS_VERSION_MAJOR && batch.tokens == nullptr ? 0 : 1;
}
END
        $cxx -std=c++17 -Wall -Wextra -Wpedantic -Werror -o "$tmp/data" "$tmp/data.cpp" $(pkg-config --cflags --libs patrickstar_data)
        LD_LIBRARY_PATH=$lib "$tmp/data"
        # the program of doc/c.md, but for designators, which are C++20's
        $cxx -std=c++20 -Wall -o "$tmp/page" -x c++ "$tmp/example.c" $(pkg-config --cflags --libs patrickstar)
        LD_LIBRARY_PATH=$lib "$tmp/page"
    fi

    rm "$lib"/libpatrickstar.so "$lib"/libpatrickstar_data.so
    $cc -o "$tmp/static" "$tmp/example.c" $(pkg-config --cflags --libs --static patrickstar)
    "$tmp/static"
    $cc -std=c11 -D_GNU_SOURCE -o "$tmp/static_data" "$tmp"/program/*.c $(pkg-config --cflags --libs --static patrickstar_data)
    (cd "$tmp/program" && "$tmp/static_data" eval tiny.json --steps 1 >"$tmp/says" 2>&1) || { cat "$tmp/says"; exit 1; }
}

house uninstall
left=$(find "$tmp/root" ! -type d)
[ -z "$left" ] || { echo "left after uninstall: $left"; exit 1; }

#!/bin/sh
# A program in C++17 over patrickstar.hpp: compiles without a warning, with and without exceptions; an exception that leaves its
# model function comes back as a failure of the call, and check() makes one of it.
#
# usage: test/cli/test_cpp.sh BUILD_FOLDER
set -eu
build=$1
variant=${build##*/}
. test/cli/skip_lib.sh
case $variant in *minimal*) skip "the shared library, which such a build has not" ;; esac
cxx=g++
case $variant in clang*) cxx=clang++ ;; esac
command -v $cxx >/dev/null || skip "$cxx"
sanitize=
case $variant in *address*) sanitize=address ;; esac
case $variant in *undefined*) sanitize=${sanitize:+$sanitize,}undefined ;; esac
case $variant in *thread*) sanitize=thread ;; esac
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
ln -s "$PWD/$build/libpatrickstar.so" "$tmp/libpatrickstar.so.0.2" # the name that programs ask for
for exceptions in '' -fno-exceptions; do
    # shellcheck disable=SC2086 # flags are words
    $cxx -Wall -Wextra -Wpedantic -Werror -std=c++17 $exceptions ${sanitize:+-fsanitize=$sanitize} -Iinclude -o "$tmp/example" \
        examples/program.cpp "$tmp/libpatrickstar.so.0.2" -Wl,-rpath,"$tmp"
    "$tmp/example" >"$tmp/output$exceptions"
done
cmp "$tmp/output" "$tmp/output-fno-exceptions"
grep -q '^loss' "$tmp/output"

cat >"$tmp/throws.cpp" <<'END'
#include <patrickstar.hpp>
#include <cstring>
static ps_status no_model(ps_builder *)
{
    return ps_set_last_error(PS_ENOSYS, "a plain function");
}
int main()
{
    patrickstar::config config;
    patrickstar::engine engine;
    patrickstar::check(patrickstar::config::create(config));
    const auto model = [](ps_builder *) -> ps_status { throw std::runtime_error("no such layer"); };
    try {
        if (patrickstar::engine::create(config, no_model, engine) != PS_ENOSYS) return 5;
        if (patrickstar::engine::create(config, &no_model, engine) != PS_ENOSYS) return 6;
        patrickstar::check(patrickstar::engine::create(config, model, engine));
    } catch (const patrickstar::error &e) {
        if (e.status() != PS_EINVAL || std::strstr(e.what(), "no such layer") == nullptr) return 2;
        return engine.get() == nullptr && config.get() != nullptr ? 0 : 3;
    }
    return 4;
}
END
# shellcheck disable=SC2086
$cxx -Wall -Wextra -Werror -std=c++17 ${sanitize:+-fsanitize=$sanitize} -Iinclude -o "$tmp/throws" "$tmp/throws.cpp" \
    "$tmp/libpatrickstar.so.0.2" -Wl,-rpath,"$tmp"
"$tmp/throws" || { echo "an exception in a model function: exit status $?"; exit 1; }

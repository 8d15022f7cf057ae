#!/bin/sh
# Packages: what make asks for, and that nothing is installed without a line that says so.
set -u
build=$1
. test/cli/cli_lib.sh
# As from a shell: the variables of this make are in the environment too.
as_from_a_shell() { env -i PATH="$PATH" HOME="$HOME" "$@"; }

# A Debian system on which nothing is installed, and which only notes what is to be done.
mkdir "$work/bin"
for name in dpkg-query apt-get apt-cache; do printf '#!/bin/sh\necho "%s $*" >>"%s"\n' $name "$work/calls" >"$work/bin/$name"; done
printf '#!/bin/sh\necho "${FAKE_UID:-0}"\n' >"$work/bin/id"
printf '#!/bin/sh\nexec "$@"\n' >"$work/bin/sudo"
chmod +x "$work/bin/"*
debian() { PATH="$work/bin:$PATH" "$@"; }

# asks_for PACKAGES ARGUMENTS...: make, were everything still to be made, looks for these packages and no others
asks_for() {
    packages=$1
    shift
    as_from_a_shell make -B -n "$@" 2>/dev/null >"$work/plan"
    sed -n 's/^sh tool\/deps.sh //p' "$work/plan" | tr ' ' '\n' | sort -u >"$work/asked"
    echo "$packages" | tr ' ' '\n' | sort -u | cmp -s - "$work/asked" ||
        { cat "$work/asked"; fail "make $* asks for other packages than $packages"; }
}
to_build="gcc libc6-dev libjansson-dev libpcre2-dev liburing-dev libutf8proc-dev libxxhash-dev libzstd-dev zlib1g-dev"
asks_for "$to_build" demo
asks_for "$to_build" all MPI=
asks_for "$to_build libopenmpi-dev openmpi-bin" all MPI=openmpi
as_from_a_shell make -B -n test CUDA= DEPS=0 2>/dev/null >"$work/plan"
! grep -q deps.sh "$work/plan" || fail "make test DEPS=0 looks for packages"

# Without an MPI: a line, and no package of it.
for tool in sh sed make gcc g++ ar uname nproc sha256sum cat sort head cut tr paste; do
    ln -sf "$(command -v $tool)" "$work/bin/$tool"
done
env -i PATH="$work/bin" make -B -n all 2>/dev/null >"$work/plan"
grep -q "no mpicc.openmpi: built without the plug-in" "$work/plan" || fail "nothing is said of the missing MPI"
! grep -q openmpi-bin "$work/plan" || fail "make installs an MPI"
! grep -q libpatrickstar_openmpi.so "$work/plan" || fail "the plug-in is built without a compiler for it"

# The line comes first, with the command itself.
expect 0 debian sh tool/deps.sh one two
says out "deps: missing: one two"
says out "deps: installing by: apt-get install --no-install-recommends one two (DEPS=0"
grep -q '^apt-get .*install --no-install-recommends one two$' "$work/calls" || fail "not what was said: $(cat "$work/calls")"
FAKE_UID=1000
export FAKE_UID
expect 0 debian sh tool/deps.sh one
says out "deps: installing by: sudo apt-get install --no-install-recommends one ("
rm "$work/bin/sudo" "$work/calls"
ln -sf "$(command -v grep)" "$(command -v dirname)" "$work/bin/"
PATH=$work/bin expect 1 sh tool/deps.sh one
says err "not root, and there is no sudo. As root: apt-get install --no-install-recommends one"
! grep -q apt-get "$work/calls" || fail "installed all the same"

#!/bin/sh
# The package for PyTorch installs: as the wheel of `make python`, and by pip from the tree, without a network; what is missing is said.
#
# usage: test/cli/test_python_wheel.sh BUILD_FOLDER
set -u
build=$1
. test/cli/cli_lib.sh
case ${build##*/} in
*minimal*) skip "the shared library, which such a build has not" ;;
*address* | *undefined* | *thread*) skip "a Python that does not know of sanitizers" ;;
esac
/usr/bin/python3 -c 'import torch' 2>/dev/null || skip "PyTorch (Debian: python3-torch)"
/usr/bin/python3 -m venv --system-site-packages "$work/venv" >/dev/null 2>&1 || skip "python3-venv"
unset PATRICKSTAR_LIBRARY PYTHONPATH MAKEFLAGS MFLAGS MAKELEVEL
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INDEX=1
python=$work/venv/bin/python
library=$root/$build/libpatrickstar.so

# A tree of its own, so that nothing is written here: its Makefile has what pip is to build.
tree=$work/tree
mkdir -p "$tree/src" "$tree/include"
cp -r "$root/python" "$root/third_party" "$root/LICENSE" "$tree/"
cp "$root/include/patrickstar.h" "$tree/include/"

# installed HOW: another folder's Python imports it, with the library and pstar that came along
installed() {
    (cd "$work" && expect 0 "$python" -W ignore -c '
import importlib.metadata, os, sys
from patrickstar import _library, _program
version = _library.library.ps_version(None, None, None).decode()
assert importlib.metadata.version("patrickstar") == version, version
folder = os.path.join(sys.prefix, "lib")
assert os.path.realpath(_library.path()).startswith(os.path.realpath(folder)), _library.path()
assert os.path.dirname(_program.find()) == os.path.dirname(os.path.realpath(_library.path())), _program.find()') || exit 1
    expect 0 "$work/venv/bin/pstar" --version
    expect 0 "$work/venv/bin/patrickstar" --help-config memory.total
    says out "memory.total="
    expect 0 "$python" -W ignore -m patrickstar.info
    says out "site-packages/patrickstar/lib/libpatrickstar.so"
    expect 0 "$python" -W ignore -m patrickstar.merge --help
    expect 0 "$python" -W ignore -m patrickstar.visualize --help
    expect 0 "$python" -m pip uninstall -q -y patrickstar
    [ -z "$(ls -d "$work"/venv/lib/python*/site-packages/patrickstar* 2>/dev/null)" ] || fail "$1: pip leaves files behind"
}

PATRICKSTAR_LIBRARY=$library expect 0 /usr/bin/python3 "$tree/python/build_wheel.py" "$work/wheel"
wheel=$(ls "$work"/wheel/*.whl)
version=$("$pstar" --version | grep -o '[0-9]*\.[0-9]*\.[0-9]*' | head -n 1)
[ "${wheel##*/}" = "patrickstar-$version-py3-none-linux_$(uname -m).whl" ] || fail "the wheel is called ${wheel##*/}"
expect 0 "$python" -m pip install -q "$wheel"
installed wheel
PATRICKSTAR_LIBRARY=$library expect 0 /usr/bin/python3 "$tree/python/build_wheel.py" "$work/again"
cmp -s "$wheel" "$work/again/${wheel##*/}" || fail "the same content is another wheel"

# Licences of what is linked statically, each that third_party/libraries.txt has; the tag of make python's wheel.
mkdir "$work/licenses"
PATRICKSTAR_LIBRARY=$library expect 1 /usr/bin/python3 "$tree/python/build_wheel.py" --licenses "$work/licenses" "$work/none"
says err "there is no licence of jansson"
for name in jansson pcre2 liburing utf8proc xxhash zlib zstd; do echo "licence of $name" >"$work/licenses/$name"; done
PATRICKSTAR_LIBRARY=$library expect 0 /usr/bin/python3 "$tree/python/build_wheel.py" --licenses "$work/licenses" "$work/static"
/usr/bin/python3 - "$work/static/${wheel##*/}" "$version" <<'END' || fail "licences or metadata of the wheel"
import email, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    info = "patrickstar-%s.dist-info/" % sys.argv[2]
    metadata = email.message_from_bytes(wheel.read(info + "METADATA"))
    assert metadata["Version"] == sys.argv[2], metadata["Version"]
    assert metadata["License-Expression"] == "BSD-2-Clause AND BSD-3-Clause AND MIT AND Zlib", metadata["License-Expression"]
    names = metadata.get_all("License-File")
    assert {"LICENSE", "uPlot", "jansson", "pcre2", "liburing", "utf8proc", "xxhash", "zlib", "zstd"} == set(names), names
    for name in names:
        assert wheel.read(info + "licenses/" + name), name
    assert wheel.read(info + "licenses/xxhash") == b"licence of xxhash\n"
END
made=$(ls "$root"/build/python/*-manylinux_*.whl 2>/dev/null)
if [ -n "$made" ] && [ -x "$root/build/wheel_tools/bin/auditwheel" ]; then
    expect 0 "$root/build/wheel_tools/bin/auditwheel" show "$made"
    says out '"manylinux_2_28_x86_64"'
else
    untried_wheel=yes
fi

# The source distribution: what builds the library, a pyproject.toml at its top; pip builds it by its Makefile.
expect 0 /usr/bin/python3 "$root/python/build_wheel.py" --sdist "$work/sdist"
expect 0 /usr/bin/python3 "$root/python/build_wheel.py" --sdist "$work/sdist2"
archive=patrickstar-$version.tar.gz
cmp -s "$work/sdist/$archive" "$work/sdist2/$archive" || fail "the same content is another source distribution"
tar -C "$work" -xzf "$work/sdist/$archive" || fail "the source distribution does not unpack"
sdist=$work/patrickstar-$version
for file in PKG-INFO pyproject.toml LICENSE Makefile README.md src/exports.map; do
    [ -s "$sdist/$file" ] || fail "the source distribution has no $file"
done
(cd "$root" && git ls-files -- src cli include python/patrickstar third_party tool examples 2>/dev/null) | while read -r file; do
    [ -e "$sdist/$file" ] || echo "$file"
done >"$work/missing"
[ ! -s "$work/missing" ] || fail "the source distribution lacks $(head -n 3 "$work/missing")"
make -C "$sdist" -n DEPS=0 CUDA= all >"$work/out" 2>"$work/err" || fail "make cannot build the source distribution: $(cat "$work/err")"
printf 'all:\n\t@mkdir -p build && cp %s %s build/\n' "$library" "$root/$build/pstar" >"$sdist/Makefile"
expect 0 "$python" -m pip install -q "$sdist"
installed "pip install SDIST"

# The container file: the files that it names are there, and builds are left out.
for file in $(grep -o 'python/[a-z_]*\.py\|tool/[a-z_]*\.[a-z]*' "$root/Containerfile"); do
    [ -e "$root/$file" ] || fail "Containerfile names $file, which is not there"
done
grep -qx build "$root/.dockerignore" || fail "builds of this machine would go into the container"

# By pip from a tree, which make builds first: with build isolation, and without.
printf 'all:\n\t@mkdir -p build && cp %s %s build/\n' "$library" "$root/$build/pstar" >"$tree/Makefile"
for how in '' --no-build-isolation; do
    # shellcheck disable=SC2086 # one word or none
    expect 0 "$python" -m pip install -q $how "$tree/python"
    installed "pip install $how"
done
[ -z "$(ls "$tree/python" | grep -v '^build_wheel.py$\|^patrickstar$\|^pyproject.toml$\|^test$\|^__pycache__$')" ] ||
    fail "pip leaves files in the tree: $(ls "$tree/python")"
expect 0 "$python" -m pip install -q -e "$tree/python"
(cd "$work" && PATRICKSTAR_LIBRARY=$library expect 0 "$python" -W ignore -c '
import patrickstar, sys
assert patrickstar.__file__.startswith(sys.argv[1]), patrickstar.__file__' "$tree/python") || exit 1
expect 0 "$python" -m pip uninstall -q -y patrickstar

# What is missing.
PATRICKSTAR_LIBRARY=$work/nowhere.so expect 1 "$python" "$tree/python/build_wheel.py" "$work/none"
says err "nowhere.so: there is no such file"
cp "$library" "$work/libpatrickstar.so"
PATRICKSTAR_LIBRARY=$work/libpatrickstar.so expect 1 "$python" "$tree/python/build_wheel.py" "$work/none"
says err "there is no program pstar beside"
sed -i 's/^#define PS_VERSION_MINOR .*/#define PS_VERSION_MINOR 999/' "$tree/include/patrickstar.h"
PATRICKSTAR_LIBRARY=$library expect 1 "$python" "$tree/python/build_wheel.py" "$work/none"
says err "is version $version, and this source tree is 0.999."
"$python" -c 'import ctypes.util, sys; sys.exit(ctypes.util.find_library("patrickstar") is not None)' ||
    { untried "a machine without an installed library"; finish; }
printf 'DEPS_BUILD := libc6-dev no-such-package-dev\nall:\n\t@echo jansson.h is not there >&2; exit 1\n' >"$tree/Makefile"
expect 1 "$python" "$tree/python/build_wheel.py" "$work/none"
says err "jansson.h is not there"
says err "make deps && make"
! command -v dpkg-query >/dev/null || says err "missing: apt-get install --no-install-recommends no-such-package-dev"
cp -r "$tree/python" "$work/alone"
expect 1 "$python" "$work/alone/build_wheel.py" "$work/none"
says err "there is no source tree around"
[ ! -e "$work/none" ] || fail "a wheel was written"
[ "${untried_wheel:-no}" = no ] || { untried "the tag of make python's wheel, as there is none"; finish; }
exit 0

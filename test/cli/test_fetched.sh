#!/bin/sh
# What `make python` fetches is what its tables say: a package or a source with another SHA-256 is refused. Without a network.
#
# usage: test/cli/test_fetched.sh BUILD_FOLDER
set -u
build=$1
. test/cli/cli_lib.sh
python3 -m venv "$work/venv" >/dev/null 2>&1 || skip "python3-venv"
export PIP_NO_INDEX=1 PIP_FIND_LINKS="$work/index"
# The real tables pin each entry.
grep -v '^#' "$root/tool/wheel_tools.txt" | grep -vq '==[0-9.]* --hash=sha256:[0-9a-f]\{64\}$' && fail "wheel_tools.txt has a package without a hash"

# Packages: a ziglang that prints its version, of the right SHA-256 and of another one.
python3 - "$work/index" <<'EOP'
import os, sys, zipfile
os.makedirs(sys.argv[1])
with zipfile.ZipFile(sys.argv[1] + "/ziglang-1.0-py3-none-any.whl", "w") as wheel:
    program = zipfile.ZipInfo("ziglang/zig")
    program.external_attr = 0o100755 << 16
    wheel.writestr(program, "#!/bin/sh\necho \"clang version 1.0: $*\"\n")
    wheel.writestr("ziglang/__init__.py", "")
    wheel.writestr("ziglang/LICENSE", "licence\n")
    wheel.writestr("ziglang-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: ziglang\nVersion: 1.0\n")
    wheel.writestr("ziglang-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr("ziglang-1.0.dist-info/RECORD", "")
EOP
sum=$(sha256sum "$work"/index/*.whl | cut -d ' ' -f 1)
wrong=$(echo "$sum" | tr 0-9a-f 1-9a-f0)
echo "ziglang==1.0 --hash=sha256:$sum" >"$work/right.txt"
echo "ziglang==1.0 --hash=sha256:$wrong" >"$work/wrong.txt"
echo "ziglang==1.0" >"$work/none.txt"
expect 0 sh "$root/tool/wheel_tools.sh" "$work/tools" 2.28 "$work/right.txt"
says out "clang version 1.0: cc -target x86_64-linux-gnu.2.28 --version"
for table in wrong none; do
    expect 1 sh "$root/tool/wheel_tools.sh" "$work/tools" 2.28 "$work/$table.txt"
    says err "pip cannot install what $work/$table.txt names"
    [ ! -e "$work/tools" ] || fail "$table: tools are left that make would take for good"
done

# Sources, of a mirror that is a folder; what a mirror has not would come over the network, which is closed here.
mkdir -p "$work/mirror/debian/pool" "$work/small-1.0"
echo content >"$work/small-1.0/file.c"
tar -C "$work" -czf "$work/mirror/debian/pool/small_1.0.orig.tar.gz" small-1.0
sum=$(sha256sum "$work"/mirror/debian/pool/*.gz | cut -d ' ' -f 1)
export DEBIAN_MIRROR="file://$work/mirror" https_proxy=http://127.0.0.1:9 no_proxy=
echo "small 1.0 MIT debian/pool/small_1.0.orig.tar.gz $sum" >"$work/table"
expect 0 python3 "$root/tool/fetch_sources.py" "$work/sources" "$work/table"
cmp -s "$work/sources/small/file.c" "$work/small-1.0/file.c" || fail "another content"
echo "small 1.0 MIT debian/pool/small_1.0.orig.tar.gz $(echo "$sum" | tr 0-9a-f 1-9a-f0)" >"$work/table"
expect 1 python3 "$root/tool/fetch_sources.py" "$work/refused" "$work/table"
says err "its SHA-256 is $sum, not"
[ ! -e "$work/refused/small" ] || fail "it was unpacked all the same"
[ -z "$(ls "$work/refused/archives")" ] || fail "it was kept"
echo "small 1.0 MIT debian/pool/small_1.0.orig.tar.gz" >"$work/table"
expect 2 python3 "$root/tool/fetch_sources.py" "$work/refused" "$work/table"
says err "table:1: expected NAME VERSION LICENCE FILE SHA-256"
exit 0

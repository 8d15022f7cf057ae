#!/bin/sh
# Make a virtual environment with what makes a wheel: zig, whose clang compiles for an older glibc, and auditwheel.
#
# usage: tool/wheel_tools.sh DEST GLIBC [REQUIREMENTS]
#
# Afterwards DEST/bin/zig-cc compiles for x86-64 with that glibc or a later one, and DEST/bin/auditwheel checks a wheel.
# Needs python3-venv and PyPI, through pip: some 100 MB. Versions and their SHA-256 are in tool/wheel_tools.txt.
set -eu
[ $# -eq 2 ] || [ $# -eq 3 ] || { echo 'usage: tool/wheel_tools.sh DEST GLIBC [REQUIREMENTS]' >&2; exit 2; }
dest=$1
requirements=${3:-$(dirname "$0")/wheel_tools.txt}

rm -rf "$dest"
python3 -m venv "$dest"
"$dest/bin/pip" install --disable-pip-version-check -q --only-binary :all: --require-hashes -r "$requirements" || {
    echo "wheel_tools: pip cannot install what $requirements names" >&2
    echo 'wheel_tools: without PyPI, `pip install ./python` makes a package for this machine' >&2
    rm -rf "$dest"
    exit 1
}
zig=$("$dest/bin/python" -c 'import os, ziglang; print(os.path.join(os.path.dirname(ziglang.__file__), "zig"))')
cat >"$dest/bin/zig-cc" <<END
#!/bin/sh
exec '$zig' cc -target x86_64-linux-gnu.$2 "\$@"
END
chmod +x "$dest/bin/zig-cc"
cp "$(dirname "$zig")/LICENSE" "$dest/zig-license"
"$dest/bin/zig-cc" --version | head -n 1

#!/bin/sh
# Install the wheel of `make python` in fresh root file systems of Debian without compilers, and train there.
#
# usage: tool/wheel_roots.sh WHEEL FOLDER [SUITE...]      SUITE: bullseye (11), trixie (13), sid; all of them by default
#
# As root, with debootstrap and the network. FOLDER/SUITE is made where it is missing (with PyTorch 1 GB) and
# kept. PyTorch is Debian's. Debian 11's, 1.7, is too old: PyTorch 1.13.1 of PyPI is installed there, with its libraries
# of CUDA (4 GB). Each trial: no compiler is there; pip installs the wheel; python -m patrickstar.info; pstar trains the
# demo for some steps; tool/wheel_trial.py trains a module. DEBIAN_MIRROR names the mirror.
set -u
[ $# -ge 2 ] || { sed -n '4s/^# //p' "$0" >&2; exit 2; }
root=$(cd "$(dirname "$0")/.." && pwd)
wheel=$1 folder=$2
shift 2
[ $# -gt 0 ] || set -- bullseye trixie sid
[ -f "$wheel" ] || { echo "wheel_roots: there is no wheel $wheel: make python" >&2; exit 2; }
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

inside() { sh "$root/tool/debian_root.sh" run "$folder/$suite" root "$@"; }

make_root() {
    [ ! -e "$folder/$suite/.has_torch" ] || return 0
    sh "$root/tool/debian_root.sh" make "$folder/$suite" "$suite" python3 python3-venv python3-pip ca-certificates ||
        return 1
    rm -rf "$folder/$suite/venv"
    if [ "$suite" = bullseye ]; then
        inside python3 -m venv /venv && inside /venv/bin/pip install -q --no-cache-dir torch==1.13.1 'numpy<2'
    else
        inside env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends python3-torch \
            python3-numpy &&
            inside python3 -m venv --system-site-packages /venv
    fi >>"$folder/$suite.log" 2>&1 || { tail -n 5 "$folder/$suite.log"; return 1; }
    touch "$folder/$suite/.has_torch"
}

trial() {
    make_root || return 1
    for compiler in cc gcc clang c++ g++; do
        ! inside sh -c "command -v $compiler" || { echo "there is a compiler, $compiler"; return 1; }
    done
    rm -rf "$folder/$suite/trial"
    mkdir "$folder/$suite/trial"
    cp -r "$wheel" "$root/tool/wheel_trial.py" "$root/examples" "$root/data" "$folder/$suite/trial/"
    inside /venv/bin/pip install -q --no-index --force-reinstall --no-deps "/trial/${wheel##*/}" || return 1
    inside /venv/bin/pip check || true
    inside sh -c 'cd /trial && /venv/bin/python -W ignore -m patrickstar.info' || return 1
    inside sh -c 'cd /trial && /venv/bin/python -m patrickstar.info --json' >"$folder/$suite.json" || return 1
    inside sh -c 'cd /trial && /venv/bin/pstar train examples/demo.json train.steps=5 2>&1 | tail -n 8
        [ -e runs/demo/summary.json ]' || return 1
    inside sh -c 'cd /trial && /venv/bin/python -W ignore wheel_trial.py' || return 1
}

status=0
for suite; do
    echo "== $suite: $(date -u +%Y-%m-%d)"
    if trial; then echo "== $suite: installs and trains"; else echo "== $suite: FAILED"; status=1; fi
done
exit $status

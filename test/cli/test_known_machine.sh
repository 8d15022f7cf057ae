# pstar measures the machine once, keeps what it found, and plans with it.
set -u
pstar=$1/pstar
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset PSTAR_HARDWARE
ask=hardware=auto
export XDG_CACHE_HOME="$work/a/cache"
fail() { echo "$*"; cat "$work/out" "$work/err"; exit 1; }
plan() { "$pstar" plan "$work/tiny.json" --no-advice ${ask:+"$ask"} "$@" >"$work/out" 2>"$work/err" || fail "plan $*"; }
kept() { ls "$XDG_CACHE_HOME"/patrickstar/machine-*.json 2>/dev/null | wc -l; }
cat >"$work/tiny.json" <<'END'
{"model": {"vocab_size": 64, "n_positions": 16, "n_embd": 32, "n_layer": 1, "n_head": 2},
 "memory": {"device": "8MB", "host": 0}, "train_micro_batch_size_per_gpu": 2}
END

plan
grep -q "^measured this machine for .* s, to plan with from now on: $XDG_CACHE_HOME/patrickstar/machine-" "$work/err" || fail "not measured"
grep -q "^hardware  this machine, rates of " "$work/out" && ! grep -q "no particular" "$work/out" || fail "not planned with"
[ "$(kept)" = 1 ] || fail "not kept"
first=$(cat "$XDG_CACHE_HOME"/patrickstar/machine-*.json)
plan
[ -s "$work/err" ] && fail "measured twice"
[ "$first" = "$(cat "$XDG_CACHE_HOME"/patrickstar/machine-*.json)" ] || fail "the description has changed"
plan --hardware "$(ls "$XDG_CACHE_HOME"/patrickstar/machine-*.json)" # it is a description as any other

# another number format, and the disk, are measured apart
plan bf16.enabled=true
[ "$(kept)" = 2 ] || fail "bf16 takes the rates of f32"

# what cannot be read is measured again
for f in "$XDG_CACHE_HOME"/patrickstar/machine-*.json; do echo '{"name": ' >"$f"; done
plan
grep -q "^measured" "$work/err" || fail "a broken description was taken"
plan
[ -s "$work/err" ] && fail "a broken description was kept"

# where nothing can be kept it is for this run only
XDG_CACHE_HOME=/proc/nowhere plan
grep -q "for this run only" "$work/err" || fail "kept in /proc"
(unset XDG_CACHE_HOME HOME; plan; grep -q "neither XDG_CACHE_HOME nor HOME" "$work/err") || fail "kept without a home"

# who does not ask is not measured; PSTAR_HARDWARE asks for who says nothing
described=$(ls "$XDG_CACHE_HOME"/patrickstar/machine-*.json | head -n 1)
ask=
export XDG_CACHE_HOME="$work/b"
plan
grep -q "rates of no particular PC" "$work/out" || fail "measured unasked"
plan --hardware none
PSTAR_HARDWARE=none plan
[ -d "$work/b" ] && fail "measured in spite of none"
PSTAR_HARDWARE=$described plan
grep -q "rates of no particular PC" "$work/out" && fail "PSTAR_HARDWARE names a description"
PSTAR_HARDWARE=$described plan hardware=none # the configuration comes first
grep -q "rates of no particular PC" "$work/out" || fail "the configuration does not come first"
[ -d "$work/b" ] && fail "measured in spite of a description"
if PSTAR_HARDWARE=$work/absent.json "$pstar" plan "$work/tiny.json" >"$work/out" 2>"$work/err"; then fail "a missing description"; fi
grep -q "PSTAR_HARDWARE (a file, auto or none).*absent.json" "$work/err" || fail "the missing description is not named"
PSTAR_HARDWARE=auto plan
[ "$(kept)" = 1 ] || fail "PSTAR_HARDWARE=auto measures nothing"
plan --hardware auto
[ -s "$work/err" ] && fail "--hardware auto measures again"
exit 0

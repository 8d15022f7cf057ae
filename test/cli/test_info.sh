#!/bin/sh
# pstar info --measure writes a hardware description that loads again, or nothing.
set -u
build=$1
. test/cli/cli_lib.sh

expect 0 "$pstar" info
cp "$work/out" "$work/info"
says out "GPU "
case $(sed -n 's/^instruction set  *//p' "$work/out") in
amx) says out "bf16, multiplied by tiles of AMX;" ;;
avx512_bf16) says out "bf16, multiplied " ;;
*) says out "bf16, multiplied in fp32;" ;;
esac

# the same for programs
expect 0 "$pstar" info --json --disk-path "$work"
python3 - "$work/out" "$work/info" "$work" <<'END' || fail "pstar info --json"
import json, os, re, sys
with open(sys.argv[1]) as file:
    found = json.load(file)
with open(sys.argv[2]) as file:
    text = dict(re.split("  +", line, maxsplit=1) for line in file.read().splitlines() if re.match(r"\S.*?  +\S", line))
assert found["pstar"] == text["pstar"]
assert "%s, %d cores usable" % (found["processor"]["name"], found["processor"]["cores"]) == text["processor"]
assert found["processor"]["isa"] == text["instruction set"]
assert text["processor kind"].startswith(found["processor"]["kind"] + " (")
assert 0 < found["memory"]["available_bytes"] <= found["memory"]["total_bytes"]
assert found["disk"]["path"] == sys.argv[3] and found["disk"]["is_usable"] and found["disk"]["free_bytes"] > 0
assert (found["gpu"] is None) == (text["GPU"] == "no NVIDIA GPU found")
assert (found["nvidia_libraries"] is None) == ("NVIDIA driver" not in text)
assert found["nvidia_libraries"] is not None or "cuda" not in found["plugins"] and found["gpu"] is None
for name, one in (found["nvidia_libraries"] or {}).items():
    assert text["NVIDIA " + name] == (one.get("error") or "%s, %s" % (one["version"], one["path"])), name
    assert "error" in one or os.path.isfile(one["path"]), one
assert text["libraries"].startswith(", ".join("%s %s" % item for item in found["libraries"].items())), text["libraries"]
assert "jansson" in found["libraries"] and text["plug-ins"] == (", ".join(found["plugins"]) or "none")
END
expect 0 "$pstar" info --json --disk-path "$work/tiny.json/none"
says out '"is_usable": false'
says out '"error": "memory.disk_path: '
no_utf8=$(printf '%s/f\377r' "$work")
for path in "$no_utf8" "$no_utf8/.lock/none"; do
    mkdir -p "$no_utf8" && : >"$no_utf8/.lock"
    expect 0 "$pstar" info --json --disk-path "$path"
    says out "\"path\": \"$work/f?r"
done
says out "\"error\": \"memory.disk_path: $work/f?r"
expect 0 "$pstar" info --json --disk-path ""
says out '"disk": null'
expect 2 env PS_TEST_CPU=pentium "$pstar" info --json
expect 2 "$pstar" info --json --forget
says err "--json is not for --forget or --measure"
expect 0 "$pstar" info --quick --measure "$work/me.json" --disk-path "$work"
for figure in "memory: y = a + b" "memory: Adam" "product f32: 1024 x 768 by 768 x 3072" "product bf16" "block bf16" \
    "copy: host to device" "copy: both ways at once" "disk: writing" "disk: reading" "processors busy with it"; do
    says out "$figure"
done
says out "$work/me.json, for pstar plan --hardware"
for key in '"gpus_per_node": 0' '"memory_bytes_per_s": ' '"bf16": {' '"adam_fraction": ' '"to_device_bytes_per_s": ' \
    '"isa": ' "\"cores\": $(sed -n 's/.*, \([0-9]*\) cores usable/\1/p' "$work/info")" '"compute_interference": ' '"disk": {' "Measured $(date -u +%Y)-" '"op_latency_ns": '; do
    grep -qF "$key" "$work/me.json" || fail "not written: $key"
done
[ "$(find "$work" -name '*.tmp*' -o -name '*.chunks' | wc -l)" -eq 0 ] || fail "left over: $(ls "$work")"

# another processor, for tests; a name that is none is an error of whatever computes
expect 0 env PS_TEST_CPU=portable "$pstar" info
says out "instruction set     portable"
expect 0 env PS_TEST_CPU=portable "$pstar" info --quick --measure - --disk-path "" --format f32
says out '"isa": "portable"'
expect 2 env PS_TEST_CPU=pentium "$pstar" info
says err "PS_TEST_CPU: 'pentium' is no processor kind, expected one of portable, avx2, avx512, "
for command in train plan; do
    expect 2 env PS_TEST_CPU=pentium "$pstar" $command "$work/tiny.json"
    says err "PS_TEST_CPU: 'pentium'"
done

# one number format, threads, and the description alone on stdout
expect 0 "$pstar" info --quick --measure - --disk-path "" --format bf16 --threads 1 --isa "$(sed -n 's/^instruction set  *//p' "$work/info")"
cp "$work/out" "$work/one.json"
expect 0 "$pstar" plan "$work/tiny.json" --hardware "$work/one.json" --sizes
cp "$work/one.json" "$work/out"
grep -q '"f32"\|"disk"' "$work/one.json" && fail "more than was asked for"
says out ", 1 threads, kernels "
expect 2 "$pstar" info --measure - --format f64
says err "--format 'f64' is not f32, bf16 or f16"
expect 2 "$pstar" info --measure - --isa sse
expect 2 "$pstar" info --measure - --threads 0

# what cannot be written, or measured, is said at once and leaves an older file as it was
cp "$work/me.json" "$work/before.json"
expect 3 "$pstar" info --quick --measure "$work/absent/me.json" --disk-path "$work"
says err "absent"
expect 3 "$pstar" info --quick --measure "$work/me.json" --disk-path "$work/tiny.json/none"
says err "memory.disk_path: "
cmp "$work/me.json" "$work/before.json" || fail "changed"
expect 2 "$pstar" info --quick extra

#!/bin/sh
# Two hosts: network namespaces that a virtual cable joins, a rank in each, TCP between them. The demo trains; then the
# cable is cut in the middle of a step, joined again, and training resumes from the checkpoint.
# usage: test/cli/test_two_hosts.sh BUILD_FOLDER (root)
set -u
. test/cli/ranks_lib.sh
[ "$(id -u)" -eq 0 ] || skip "namespaces need root"
command -v ip >/dev/null || skip "no command ip (package iproute2)"
a=pstar-a-$$ b=pstar-b-$$
ip netns add $a 2>"$work/err" || skip "namespaces are not allowed here: $(cat "$work/err")"
clean_up() {
    for host in $a $b; do
        ip netns pids $host 2>/dev/null | xargs -r kill -9
        ip netns del $host 2>/dev/null
    done
    rm -rf "$work"
}
trap clean_up EXIT
ip netns add $b
ip -n $a link add cable type veth peer name cable netns $b 2>"$work/err" ||
    skip "no virtual network: $(cat "$work/err")"
ip -n $a address add 10.77.0.1/24 dev cable
ip -n $b address add 10.77.0.2/24 dev cable
for host in $a $b; do
    ip -n $host link set lo up
    ip -n $host link set cable up
done

# What a launcher calls in the place of ssh: AGENT HOST COMMAND. Each host has a name of its own.
cat >"$work/agent" <<EOT
#!/bin/sh
shift
exec ip netns exec $b unshare --uts sh -c "hostname host-b; \$*"
EOT
chmod +x "$work/agent"
# both [key=value...]: a rank on each host, in the background; out, err and, at the end, the status in $work
both() {
    rm -f "$work/status"
    (
        timeout -k 5 60 ip netns exec $a unshare --uts sh -c 'hostname host-a; exec "$@"' sh \
            mpirun.openmpi --mca plm_rsh_agent "$work/agent" --mca btl tcp,self --mca btl_tcp_if_include 10.77.0.0/24 \
            --mca oob_tcp_if_include 10.77.0.0/24 --mca orte_tmpdir_base "$work" --output-filename "$work/log" -host 10.77.0.1,10.77.0.2 -np 2 \
            "$pstar" train "$root/examples/demo.json" data.train="$root/data/text/moby-dick.txt" \
            data.tokenizer="$root/data/gpt2" memory.disk_path="$work" train_micro_batch_size_per_gpu=1 \
            memory.device=120MB model.n_embd=64 model.n_positions=64 train.steps=8 train.save_interval=1 \
            train.keep_last=9 train.save=false comm.timeout_s=3 "$@" >"$work/out" 2>"$work/err"
        echo $? >"$work/status"
    ) &
}
finish() {
    wait
    rc=$(cat "$work/status")
}
crossed() { ip -n $a -s link show cable | awk '/TX:/ { getline; print $1 }'; }

# ---- they train ----

before=$(crossed)
both -v train.output_dir="$work/whole"
finish
[ "$rc" -eq 0 ] || { cat "$work/out" "$work/err"; fail "status $rc"; }
says out "2 ranks, mpi (Open MPI"
grep -q '^0 .* host-a$' "$work/out" && grep -q '^1 .* host-b$' "$work/out" || { cat "$work/out"; fail "not on two hosts"; }
sent=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["ranks"][0]["sent_bytes"])' "$work/whole/summary.json")
[ "$sent" -gt 0 ] && [ $(($(crossed) - before)) -ge "$sent" ] || fail "$sent bytes were sent, but not over the cable"

# ---- the cable is cut ----

rm -rf "$work/log"
both train.output_dir="$work/cut" train.steps=100000
until [ -s "$work/cut/checkpoints/latest" ] && [ -e "$work/cut/checkpoints/step-000003" ]; do
    [ ! -e "$work/status" ] || { cat "$work/out" "$work/err"; fail "ended before the cable was cut"; }
    sleep 0.05
done
ip -n $a link set cable down
begin=$(date +%s)
while [ -n "$(for host in $a $b; do ip netns pids $host; done | xargs -r ps -o args= -p | grep 'pstar train' | grep -v mpirun)" ]; do
    [ $(($(date +%s) - begin)) -le 30 ] || { cat "$work/err"; fail "ranks live 30 s after the cut"; }
    sleep 0.2
done
echo "both ranks had ended $(($(date +%s) - begin)) s after the cut"
# Open MPI keeps waiting for its daemon at the cable's other end.
for host in $a $b; do ip netns pids $host | xargs -r kill -9; done
finish
[ "$rc" -ne 0 ] || fail "status 0"
# What rank 1 says cannot come over the cable either: it is on its host.
for line in "0 ^pstar train: rank 1 (host-b)" "1 ^\[rank 1 host-b\] pstar train: rank 0 (host-a)"; do
    log=$work/log/1/rank.${line%% *}/stderr
    grep -q "${line#* } has not been heard of for 3 s" "$log" || { cat "$log"; fail "not said: $line"; }
done

# ---- and joined ----

ip -n $a link set cable up
both train.output_dir="$work/cut" --resume
finish
[ "$rc" -eq 0 ] || { cat "$work/out" "$work/err"; fail "resuming: status $rc"; }
says out "resumed from"
[ "$(weights cut)" = "$(weights whole)" ] || fail "other bits after the cut"
exit 0

#!/bin/sh
# Several machines, by Open MPI over ssh. usage: examples/cluster/ssh.sh HOSTS CONFIG [key=value ...]
# HOSTS: a file like examples/cluster/hosts. ssh to each machine must go without a password; program, configuration and data
# lie at the same paths on all. NETWORK: that of the machines, such as 10.0.0.0/24 or eth0; needed where a machine has
# others too (docker0, virbr0). PORTS: the first of 100 ports that are open between the machines; without it, any.
set -eu
[ $# -ge 2 ] || { sed -n 2p "$0"; exit 2; }
hosts=$1
shift
options="--bind-to none --mca btl tcp,self,vader"
[ -z "${NETWORK:-}" ] || options="$options --mca btl_tcp_if_include $NETWORK --mca oob_tcp_if_include $NETWORK"
[ -z "${PORTS:-}" ] || options="$options --mca btl_tcp_port_min_v4 $PORTS --mca btl_tcp_port_range_v4 90 \
--mca oob_tcp_dynamic_ipv4_ports $((PORTS + 90))-$((PORTS + 99))"
# Output of each rank lies on its machine too, in cluster-log/: what it says once the network is gone can be read there.
# shellcheck disable=SC2086
exec "${MPIRUN:-mpirun}" --hostfile "$hosts" $options --output-filename "$PWD/cluster-log" \
    "${PSTAR:-$PWD/build/pstar}" train "$@"

#!/bin/sh
# Several machines, by Open MPI over ssh. usage: examples/cluster/ssh.sh HOSTS CONFIG [key=value ...]
# HOSTS: a file like examples/cluster/hosts. ssh to each machine must work without a password; program, configuration
# and data must be at the same paths on all. NETWORK: that of the machines, such as 10.0.0.0/24 or eth0; needed where a
# machine has several (docker0, virbr0). PORTS: the first of 100 ports that are open between the machines; default: any.
set -eu
[ $# -ge 2 ] || { sed -n 2p "$0"; exit 2; }
hosts=$1
shift
options="--bind-to none --mca btl tcp,self,vader"
[ -z "${NETWORK:-}" ] || options="$options --mca btl_tcp_if_include $NETWORK --mca oob_tcp_if_include $NETWORK"
[ -z "${PORTS:-}" ] || options="$options --mca btl_tcp_port_min_v4 $PORTS --mca btl_tcp_port_range_v4 90 \
--mca oob_tcp_dynamic_ipv4_ports $((PORTS + 90))-$((PORTS + 99))"
# The output of each rank is also stored on its machine, in cluster-log/, where it can be read after a network failure.
# shellcheck disable=SC2086
exec "${MPIRUN:-mpirun}" --hostfile "$hosts" $options --output-filename "$PWD/cluster-log" \
    "${PSTAR:-$PWD/build/pstar}" train "$@"

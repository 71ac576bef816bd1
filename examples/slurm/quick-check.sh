#!/bin/sh
# Prolog or epilog for Slurm: drains a node on which a short check finds a slow path or a wrong setting.
#
#   Prolog=/etc/slurm/quick-check.sh    or    Epilog=/etc/slurm/quick-check.sh    in slurm.conf, then: scontrol reconfigure
#
# Status 1 makes Slurm drain the node. Everything else ends with 0 and drains nothing: a healthy node, a node that could
# not be judged, an error of this script or of railwright, and the time limit.
# To undo it: remove the line from slurm.conf, scontrol reconfigure, scontrol update nodename=NODE state=resume
#
# QUICK_CHECK_REQUIRE=NAME lets only this path decide, as `railwright prove --require` does.

PATH=$PATH:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
HOME=${HOME:-/tmp} # slurmd sets none, and MPI needs one
export PATH HOME
railwright=${QUICK_CHECK_RAILWRIGHT:-railwright}
limit_s=${QUICK_CHECK_LIMIT_S:-40}
node=${SLURMD_NODENAME:-$(uname -n)}
undo="to undo it: scontrol update nodename=$node state=resume"

say() {
    echo "railwright: $node: $*" >&2
    logger -t railwright-quick-check -- "$node: $*" 2>/dev/null
}

cd / || exit 0
answer=$(timeout --kill-after=5 "$limit_s" "$railwright" prove --quick \
    ${QUICK_CHECK_REQUIRE:+--require "$QUICK_CHECK_REQUIRE"} 2>/dev/null </dev/null)
status=$?
first=$(printf '%s\n' "$answer" | sed -n 1p)
case $status in
0) ;;
1)
    say "drained: $first $undo"
    exit 1
    ;;
124 | 137) say "not judged within $limit_s s; the node is not drained" ;;
*) say "not judged (status $status): ${first:-no answer}; the node is not drained" ;;
esac
exit 0

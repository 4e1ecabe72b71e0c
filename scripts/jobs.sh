#!/bin/sh
# How many tests run beside each other: half as many again as there are cores, since some of them
# wait for servers and clocks, but no more than memory is there for.
set -eu

cores=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
jobs=$((cores + (cores + 1) / 2))
if [ -r /proc/meminfo ]; then
    room=$(awk '/^MemAvailable:/ { print int($2 / 2097152) }' /proc/meminfo)
    if [ "$room" -lt "$jobs" ]; then jobs=$room; fi
fi
if [ "$jobs" -lt 1 ]; then jobs=1; fi
echo "$jobs"

#!/usr/bin/env bash
# in_shards.sh COUNT PROGRAM: runs a GoogleTest program as COUNT processes at once, each with its
# share of the tests, and fails where one does. For tests that wait for most of their time. Each
# line says whose it is.
set -euo pipefail

count=$1 program=$2
shards=()
for ((shard = 0; shard < count; ++shard)); do
  GTEST_TOTAL_SHARDS=$count GTEST_SHARD_INDEX=$shard "$program" 2>&1 | sed -u "s/^/$shard| /" &
  shards+=($!)
done
status=0
for shard in "${shards[@]}"; do
  wait "$shard" || status=$?
done
exit "$status"

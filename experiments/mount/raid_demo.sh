#!/usr/bin/env bash
# Files on a volume over five servers, whose map is in an etcd of this demo's own: one server is
# killed while they are copied in, the work goes on, the server returns and is made whole, another
# one is killed, then the one that has the names too, and every byte is compared.
#
# usage: raid_demo.sh PROGRAM FOLDER     the `abacus` program; a git repository to copy from
set -euo pipefail
export LC_ALL=C

abacus=$1
repository=$2
world=$(mktemp -d)
mounts=()
declare -A pid address

say() { printf 'raid: %s\n' "$*" >&2; }
fail() {
  say "$*"
  exit 1
}

# Called by the trap.
# shellcheck disable=SC2317
end_world() {
  local mount i
  for mount in "${mounts[@]}"; do
    "$abacus" umount "$mount" 2>/dev/null || "$abacus" umount --lazy "$mount" 2>/dev/null || true
  done
  for i in "${!pid[@]}"; do
    kill "${pid[$i]}" 2>/dev/null || true
    wait "${pid[$i]}" 2>/dev/null || true
  done
  rm -rf "$world"
}
trap end_world EXIT

# begin_server NUMBER [ADDRESS]
begin_server() {
  local i=$1
  printf '[node]\nname = "server-%s"\ncontrol_address = "%s"\ndata_address = "127.0.0.1:0"\n' \
    "$i" "${2:-127.0.0.1:0}" >"$world/$i.toml"
  rm -f "$world/$i.ready"
  "$abacus" serve --data "$world/data$i" --config "$world/$i.toml" --ready-file "$world/$i.ready" \
    >>"$world/$i.log" 2>&1 &
  pid[$i]=$!
  while [[ ! -s $world/$i.ready ]]; do
    kill -0 "${pid[$i]}" 2>/dev/null || fail "server $i does not start: $(cat "$world/$i.log")"
    sleep 0.1
  done
  address[$i]=$(cat "$world/$i.ready")
}
kill_server() {
  kill -9 "${pid[$1]}"
  wait "${pid[$1]}" 2>/dev/null || true
  unset "pid[$1]"
  say "killed server $1 at ${address[$1]}"
}
# The volume's map: which servers it has, and which of them answers for its names.
begin_etcd() {
  local ports client peer
  command -v etcd >/dev/null || fail "there is no etcd; './dev install' installs Debian's"
  # Two that nobody listens at.
  ports=$(python3 -c '
import socket
ends = [socket.socket() for _ in range(2)]
for end in ends:
    end.bind(("127.0.0.1", 0))
print(*(end.getsockname()[1] for end in ends))')
  client=http://127.0.0.1:${ports% *} peer=http://127.0.0.1:${ports#* }
  etcd --data-dir "$world/etcd" --listen-client-urls "$client" --advertise-client-urls "$client" \
    --listen-peer-urls "$peer" --initial-advertise-peer-urls "$peer" \
    --initial-cluster "default=$peer" --logger zap --log-outputs "$world/etcd.log" &
  pid[etcd]=$!
  map=etcd://${client#http://}
}
# Both copies of the names have everything.
await_copies() {
  until "$abacus" volume status work --json "$world/status.json" >/dev/null &&
    python3 -c '
import json, sys
copies = json.load(open(sys.argv[1]))["map"]["copies"]
sys.exit(not all(copy["current"] for copy in copies))' "$world/status.json"; do
    sleep 0.2
  done
}
mount_as() {
  mkdir -p "$world/$1"
  "$abacus" mount "${address[2]}/work" "$world/$1" ${2:+-o "$2"}
  mounts+=("$world/$1")
}
seconds_since() { python3 -c "print(f'{$EPOCHREALTIME - $1:.2f}')"; }
compare() {
  local began=$EPOCHREALTIME
  diff -rq --no-dereference "$world/local" "$world/$1/files" || fail "the bytes differ on $1"
  printf '%-52s %8s s\n' "$2: every byte the same" "$(seconds_since "$began")"
}

[[ -w /dev/fuse ]] || fail "there is no /dev/fuse to mount with; 'abacus doctor' tells more"
servers=""
for i in 1 2 3 4 5; do
  begin_server "$i"
  servers+=${servers:+,}${address[$i]}
done
export ABACUS_SERVER=${address[2]}
begin_etcd
created=0
for _ in 1 2 3 4 5 6 7 8 9 10; do
  "$abacus" volume create work --servers "$servers" --map "$map" --metadata-copies 2 \
    2>"$world/create.log" && created=1 && break
  sleep 0.5
done
((created)) || fail "$(cat "$world/create.log")"
await_copies
mount_as first 'stack=cache/raid5(unit=32 KiB)/(isolation/storage)*4'

cp -r "$repository/objfs/raid" "$world/local"
cp -r "$repository/objfs/store" "$world/local/store"
head -c 20000000 /dev/urandom >"$world/local/noise"

began=$EPOCHREALTIME
mkdir "$world/first/files"
cp -r "$world/local/." "$world/first/files/" &
copying=$!
sleep 0.3
kill_server 3
wait "$copying" || fail "cp has failed"
printf '%-52s %8s s\n' "copied in, a server killed meanwhile" "$(seconds_since "$began")"
compare first "with a server dead"
"$abacus" volume status work || true

begin_server 3 "${address[3]}"
say "server 3 is back"
began=$EPOCHREALTIME
until "$abacus" rebuild work; do sleep 0.5; done
printf '%-52s %8s s\n' "rebuilt" "$(seconds_since "$began")"
"$abacus" volume status work

kill_server 5
mount_as second
compare second "with another server dead, on a second mount"

began=$EPOCHREALTIME
kill_server 1
mkdir "$world/first/later"
cp -r "$world/local/store" "$world/first/later/store"
sync "$world/first/later/store"/*
printf '%-52s %8s s\n' "copied more in, the server of the names killed" "$(seconds_since "$began")"
diff -rq --no-dereference "$world/local/store" "$world/first/later/store" ||
  fail "the bytes differ after the names' server was killed"
compare second "with the server of the names dead too"
"$abacus" volume status work || true

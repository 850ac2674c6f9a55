# Sourced: a server, a volume and mounts of it in a folder of their own, and a mover of objects.
# What sources it has set `abacus`, the program. All that was begun is ended with the shell.

world=$(mktemp -d)
mounts=()
server_pid=""
mover_pid=""

say() { printf 'mount: %s\n' "$*" >&2; }
fail() {
  say "$*"
  exit 1
}

# Called by the trap.
# shellcheck disable=SC2317
end_world() {
  local mount
  end_moving
  for mount in "${mounts[@]}"; do
    "$abacus" umount "$mount" 2>/dev/null || "$abacus" umount --lazy "$mount" 2>/dev/null || true
  done
  if [[ -n $server_pid ]]; then
    kill "$server_pid" 2>/dev/null || true
    wait "$server_pid" 2>/dev/null || true
  fi
  rm -rf "$world"
}
trap end_world EXIT

# begin_server: a server on ports that the system chooses, and the volume `work`.
begin_server() {
  [[ -w /dev/fuse ]] || fail "there is no /dev/fuse to mount with; 'abacus doctor' tells more"
  "$abacus" serve --data "$world/data" --listen 127.0.0.1:0 --name server --ready-file "$world/ready" \
    >"$world/server.log" 2>&1 &
  server_pid=$!
  while [[ ! -s $world/ready ]]; do
    kill -0 "$server_pid" 2>/dev/null || fail "the server does not start: $(cat "$world/server.log")"
    sleep 0.1
  done
  ABACUS_SERVER=$(cat "$world/ready")
  export ABACUS_SERVER
  "$abacus" volume create work
}

# mount_as NAME [WORDS]: the directory is $world/NAME.
mount_as() {
  mkdir -p "$world/$1"
  "$abacus" mount "$ABACUS_SERVER/work" "$world/$1" ${2:+-o "$2"}
  mounts+=("$world/$1")
}

# Moves directory and cache objects to and fro, each to a node that it is not at, until it is ended.
move_objects() {
  local moved=0 rid node code
  while :; do
    code=0
    "$abacus" status --objects 100000 --json "$world/status.json" >/dev/null 2>&1 || code=$?
    ((code <= 1)) || continue # 1: it has something to say of the cluster's health
    while read -r rid node; do
      "$abacus" move "$rid" "$node" >/dev/null 2>&1 && moved=$((moved + 1))
      # In one step: it is read meanwhile.
      echo "$moved" >"$world/moved.new" && mv "$world/moved.new" "$world/moved"
    done < <(python3 - "$world/status.json" <<'PY'
import json, os, random, sys
status = json.load(open(sys.argv[1]))
servers = [n for n in status["nodes"] if n.get("server")]
clients = [n for n in status["nodes"] if not n.get("server")]
movable = [o for o in status["objects"] if o["class"] in ("objfs.Directory", "objfs.CacheLayer")]
random.shuffle(movable)
moves = []
for o in movable[:8]:
    home = int(o["rid"].split(".")[0])
    at = servers if o.get("node") == home else [n for n in clients if n["id"] == home]
    if at:
        moves.append(f"{o['rid']} {at[0]['id']}\n")
try:
    print("".join(moves), end="", flush=True)
except BrokenPipeError:  # the moving was ended
    os._exit(0)
PY
    )
  done
}
begin_moving() {
  echo 0 >"$world/moved"
  move_objects &
  mover_pid=$!
}
# Prints how many moves there were.
end_moving() {
  [[ -n $mover_pid ]] || return 0
  kill "$mover_pid" 2>/dev/null || true
  wait "$mover_pid" 2>/dev/null || true
  mover_pid=""
}

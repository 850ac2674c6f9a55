#!/usr/bin/env bash
# Ordinary programs on a mount, and then a second client's mount compared with what the same programs
# left on the local disk, all while the objects below are moved between clients and server.
#
# usage: demo.sh PROGRAM FOLDER     the `abacus` program; a git repository to work with
set -euo pipefail
export LC_ALL=C

abacus=$1
repository=$2
# shellcheck source=world.sh
source "$(dirname "${BASH_SOURCE[0]}")/world.sh"

# What tar packs: the kernel's documentation where it is installed (package linux-doc).
packed=("$repository" objfs placement)
shopt -s nullglob
for documentation in /usr/share/doc/linux-doc-*/; do
  packed=(/usr/share/doc "$(basename "$documentation")")
done
shopt -u nullglob

# work NAME DIR: what is done on the mount and on the local disk alike.
work() {
  local name=$1 dir=$2 began=$EPOCHREALTIME ended
  case $name in
    cp) cp -r "$repository/runtime" "$dir/copied" ;;
    tar) mkdir "$dir/unpacked" && tar -C "${packed[0]}" -cf - "${packed[@]:1}" | tar -C "$dir/unpacked" -xf - ;;
    git) git -c safe.directory='*' clone -q "$repository" "$dir/clone" ;;
    sqlite) python3 - "$dir/words.db" <<'PY'
import sqlite3, sys
base = sqlite3.connect(sys.argv[1])
base.execute("create table words(id integer primary key, word text)")
for i in range(20):
    with base:
        base.executemany("insert into words(word) values (?)", ((f"word {i} {j}",) for j in range(500)))
with base:
    base.execute("delete from words where id % 3 = 0")
base.execute("vacuum")
PY
      ;;
    sort) # In an order that does not depend on the directories'.
      (cd "$dir" && find copied -type f -print0 | sort -z | xargs -0 cat | sort >sorted) ;;
  esac
  ended=$EPOCHREALTIME
  seconds=$(python3 -c "print(f'{$ended - $began:.2f}')")
}

begin_server
mount_as first
mkdir "$world/local"
begin_moving
printf '%-8s %14s %14s\n' job 'mount, s' 'local disk, s'
for job in cp tar git sqlite sort; do
  work "$job" "$world/first"
  on_mount=$seconds
  work "$job" "$world/local"
  printf '%-8s %14s %14s\n' "$job" "$on_mount" "$seconds"
done
[[ ${packed[0]} == "$repository" ]] && said="$repository: ${packed[*]:1}; there is no linux-doc" ||
  said="${packed[0]}/${packed[1]}"
while_it_worked=$(cat "$world/moved")
((while_it_worked > 0)) || fail "no object was moved while the programs worked"

mount_as second
trees=(copied unpacked clone sorted words.db)
# Of a clone, its index has inode numbers and its logs have times.
own=(index logs)
compare() {
  local tree
  for tree in "${trees[@]}"; do
    diff -rq --no-dereference --exclude=.git "$world/local/$tree" "$world/second/$tree" ||
      fail "'$tree' is not the same on the second client's mount"
  done
  diff -rq --no-dereference "${own[@]/#/--exclude=}" "$world"/{local,second}/clone/.git ||
    fail "the clone's .git is not the same on the second client's mount"
}
began=$EPOCHREALTIME
compare
# Where that was over before anything was moved, once more.
for ((i = 0; i < 20; ++i)); do
  (($(cat "$world/moved") == while_it_worked)) || break
  compare
done
git -c safe.directory='*' -C "$world/second/clone" fsck --no-progress --no-dangling ||
  fail "git finds damage in the clone"
[[ -z $(git -c safe.directory='*' -C "$world/second/clone" status --porcelain) ]] ||
  fail "git finds changes in the clone"
end_moving
while_it_was_read=$(($(cat "$world/moved") - while_it_worked))
((while_it_was_read > 0)) || fail "no object was moved while the second mount was read"
compared=$(python3 -c "print(f'{$EPOCHREALTIME - $began:.2f}')")

# rows NAME VALUE NAME VALUE ...
rows() { printf '%-34s %s\n' "$@"; }
cd "$world/local"
read -r files bytes < <(find "${trees[@]}" \( -path clone/.git/index -o -path clone/.git/logs \) \
  -prune -o -type f -printf '%s\n' |
  awk '{ bytes += $1 } END { printf "%d %.1f\n", NR, bytes / 1e6 }')
"$abacus" volume list --json "$world/volumes.json" >/dev/null
read -r commits retries < <(python3 -c "import json
volume, = json.load(open('$world/volumes.json'))['volumes']
print(volume['commits'], volume['retries'])")
echo
rows 'packed by tar' "$said" \
  'compared on a second mount' "$files files, $bytes MB, every byte the same ($compared s)" \
  'objects moved while it worked' "$while_it_worked" \
  'and while it was read there' "$while_it_was_read" \
  'changes committed by the volume' "$commits" \
  'refused, planned anew (retries)' "$retries"

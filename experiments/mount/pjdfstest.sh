#!/usr/bin/env bash
# Runs the POSIX suite pjdfstest (github.com/pjd/pjdfstest, built) against a mount, as root: on the
# plain stack, through a cache, and while directories and caches are moved all the time.
#
# usage: pjdfstest.sh PROGRAM PATH [TEST...]   the `abacus` program; the suite; its tests (all)
set -euo pipefail

abacus=$1
suite=$(realpath "$2")
shift 2
tests=("$@")
[[ ${#tests[@]} -gt 0 ]] || tests=("")

# shellcheck source=world.sh
source "$(dirname "${BASH_SOURCE[0]}")/world.sh"
((EUID == 0)) || fail "the suite changes owners and makes devices: run it as root"
[[ -x $suite/pjdfstest && -d $suite/tests ]] ||
  fail "$suite has no built pjdfstest: in its folder, autoreconf -ifs && ./configure && make"
command -v prove >/dev/null || fail "there is no prove: apt-get install perl"

begin_server
chmod 755 "$world"
failed=0
# on NAME STACK
on() {
  mount_as "$1" "stack=$2"
  mkdir "$world/$1/$1"
  local paths=() test
  for test in "${tests[@]}"; do paths+=("$suite/tests/$test"); done
  (cd "$world/$1/$1" && prove -r "${paths[@]}" >"$world/$1.log" 2>&1) || failed=1
  printf '%-8s %s\n' "$1" "$(tail -n 1 "$world/$1.log")"
  grep -E 'Failed tests?:|Failed [0-9]+/' "$world/$1.log" || true
}
on plain isolation/storage
on cache cache/isolation/storage
begin_moving
on forced cache/isolation/storage
end_moving
moved=$(cat "$world/moved")
echo "objects were moved $moved times"
((moved > 0)) || fail "nothing was moved: 'forced' was run as 'cache'"
exit "$failed"

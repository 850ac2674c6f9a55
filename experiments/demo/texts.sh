#!/usr/bin/env bash
# Makes the two texts that the demo searches:
#   DIR/Bible.txt       what the `bible` command of Debian's bible-kjv prints for the whole bible
#   DIR/LinuxBible.txt  the .gz (unpacked) and .txt files of Debian's linux-doc, in the order of
#                       their paths under LC_ALL=C, without symbolic links, cut at the first line
#                       end at or after 16 MiB
#   DIR/VERSIONS        the packages they come from, and the texts' checksums
#
# Nothing is installed: the packages are downloaded and unpacked beside the texts (slim images
# configure dpkg to drop documentation, so installing linux-doc would not even help). When the texts
# are there and no newer package is known, nothing is done, so the network is needed only once.
#
# usage: texts.sh DIR
set -euo pipefail
export LC_ALL=C

readonly TEXT_BYTES=$((16 * 1024 * 1024))
# To be raised when the same packages shall give another text.
readonly RECIPE=1

say() { printf 'texts: %s\n' "$*" >&2; }

# fail WHAT WAY_OUT
fail() {
  printf 'texts: %s\n       %s\n' "$1" "$2" >&2
  exit 1
}

as_root() {
  if [[ $(id -u) -eq 0 ]]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    fail "'$*' must run as root, and there is no sudo" "run it as root, then run this script again"
  fi
}

updated=no
update_lists() {
  [[ $updated == no ]] || return 1
  updated=yes
  say "running apt-get update"
  as_root apt-get update -qq >&2
}

# linux-doc is empty and depends on the package of the current kernel.
linux_doc_package() {
  apt-cache show --no-all-versions linux-doc 2>/dev/null |
    sed -n 's/^Depends:.*\(linux-doc-[0-9][0-9.]*\).*/\1/p' | sort -u | head -n 1
}

# The lines of VERSIONS that tell the packages that apt would fetch; fails if it does not know one.
known_packages() {
  local doc versions
  doc=$(linux_doc_package)
  [[ -n $doc ]] || return 1
  versions=$(apt-cache policy bible-kjv bible-kjv-text "$doc" 2>/dev/null |
    awk '/^[^ ].*:$/ { name = substr($0, 1, length($0) - 1) }
         $1 == "Candidate:" && $2 != "(none)" { print name, $2 }')
  [[ $(printf '%s\n' "$versions" | wc -l) -eq 3 ]] || return 1
  printf 'recipe %s\n%s\n' "$RECIPE" "$versions"
}

made_packages() { sed '/^sha256 /d' "$dir/VERSIONS"; }

texts_are_whole() {
  [[ -f $dir/VERSIONS && -f $dir/Bible.txt && -f $dir/LinuxBible.txt ]] || return 1
  sed -n 's/^sha256 //p' "$dir/VERSIONS" >"$work/sums"
  [[ $(wc -l <"$work/sums") -eq 2 ]] || return 1
  (cd "$dir" && sha256sum --quiet --strict -c "$work/sums") >/dev/null 2>&1
}

# fetch PACKAGE...: downloads them and unpacks them into $work/root. The sandbox user of apt cannot
# write to our folder, and nothing that it guards against is run here: apt checks the signatures.
fetch() {
  mkdir -p "$work/debs" "$work/root"
  (cd "$work/debs" && apt-get download -qq -o APT::Sandbox::User=root "$@" >&2) || return 1
  local deb
  for deb in "$work"/debs/*.deb; do
    dpkg-deb -x "$deb" "$work/root" || return 1
    rm "$deb"
  done
}

fetch_all() {
  local doc
  doc=$(linux_doc_package)
  [[ -n $doc ]] && fetch bible-kjv bible-kjv-text "$doc"
}

make_bible() {
  local bible=$work/root/usr/bin/bible libraries=""
  if ldd "$bible" | grep -q 'not found'; then
    # A slim image has no readline.
    fetch libreadline8 libtinfo6 || return 1
    libraries=$(dirname "$(find "$work/root" -name 'libreadline.so.8' | head -n 1)")
    libraries=$libraries:$(dirname "$(find "$work/root" -name 'libtinfo.so.6' | head -n 1)")
  fi
  # The program looks for its data in the current folder first, and breaks lines at 79 columns
  # unless COLUMNS says otherwise.
  (cd "$work/root/usr/lib" &&
    env -u COLUMNS LD_LIBRARY_PATH="$libraries" "$bible" Gen1:1-Rev22:21 </dev/null) \
    >"$work/Bible.txt" || return 1
  # Its first and its last verse, to be sure that it is all there.
  grep -q '^  1 In the beginning God created the heaven and the earth\.$' "$work/Bible.txt" &&
    tail -n 1 "$work/Bible.txt" | grep -q 'our Lord Jesus Christ be with you all\. Amen\.$'
}

make_linux_bible() {
  local all=$work/linux-doc path last
  : >"$all"
  (cd "$work/root/usr/share/doc" &&
    find linux-doc-* -type f \( -name '*.gz' -o -name '*.txt' \) -print0 | sort -z) >"$work/paths"
  while IFS= read -r -d '' path; do
    case $path in
      *.gz) gzip -dc "$work/root/usr/share/doc/$path" ;;
      *) cat "$work/root/usr/share/doc/$path" ;;
    esac >>"$all" || return 1
    [[ $(stat -c %s "$all") -lt $TEXT_BYTES ]] || break
  done <"$work/paths"
  # From the last byte of the 16 MiB: its line's end is the first line end that counts.
  tail -c "+$TEXT_BYTES" "$all" >"$work/tail"
  last=$(head -n 1 "$work/tail" | wc -c)
  head -c "$((TEXT_BYTES - 1 + last))" "$all" >"$work/LinuxBible.txt"
  [[ $(stat -c %s "$work/LinuxBible.txt") -ge $TEXT_BYTES ]]
}

main() {
  if [[ $# -ne 1 || $1 == -* ]]; then
    printf 'usage: %s DIR\n' "$0" >&2
    exit 2
  fi
  local tool packages
  for tool in apt-get apt-cache dpkg-deb gzip sha256sum; do
    command -v "$tool" >/dev/null ||
      fail "there is no $tool here" "the texts come from Debian packages; make them on Debian"
  done
  mkdir -p "$1"
  dir=$(cd "$1" && pwd)
  work=$(mktemp -d "$dir/.making.XXXXXX")
  trap 'rm -rf "$work"' EXIT

  local whole=no
  if texts_are_whole; then whole=yes; fi
  packages=$(known_packages) || packages=""
  if [[ $whole == yes && (-z $packages || $packages == "$(made_packages)") ]]; then
    say "$dir has both texts"
    return
  fi
  if [[ -z $packages ]]; then
    update_lists || true
    packages=$(known_packages) ||
      fail "apt knows no bible-kjv or linux-doc" \
        "enable Debian's 'main' in /etc/apt/sources.list*, run apt-get update, and try again"
  fi

  say "downloading $(printf '%s' "$packages" | sed -n '2,$p' | tr '\n' ',' | sed 's/,$//; s/,/, /g')"
  # Lists that are older than the archive name files that are gone: then update once.
  if ! fetch_all && ! { update_lists && packages=$(known_packages) && fetch_all; }; then
    if [[ $whole == yes ]]; then
      say "the newer packages cannot be downloaded now; $dir keeps the texts that it has"
      return
    fi
    fail "the packages cannot be downloaded" \
      "check the network and apt's sources (apt-get update must succeed), then try again"
  fi
  make_bible || fail "the bible command did not print the whole bible" \
    "install bible-kjv and see what 'bible Gen1:1' says, or whether the disk is full"
  make_linux_bible || fail "16 MiB of text cannot be made from linux-doc" \
    "see which package 'apt-cache depends linux-doc' names, and whether the disk is full"

  # A text is whole or absent, and VERSIONS, which vouches for both, comes last.
  {
    printf '%s\n' "$packages"
    (cd "$work" && sha256sum Bible.txt LinuxBible.txt) | sed 's/^/sha256 /'
  } >"$work/VERSIONS"
  mv "$work/Bible.txt" "$dir/Bible.txt"
  mv "$work/LinuxBible.txt" "$dir/LinuxBible.txt"
  mv "$work/VERSIONS" "$dir/VERSIONS"
  say "made $dir/Bible.txt ($(stat -c %s "$dir/Bible.txt") bytes) and" \
    "$dir/LinuxBible.txt ($(stat -c %s "$dir/LinuxBible.txt") bytes)"
}

main "$@"

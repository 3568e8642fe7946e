#!/usr/bin/env bash
# Profiles the broker while it publishes and fans out, and writes what costs most into a folder below perf/runs.
#   perf/profile.sh                               a folder of its own
#   perf/profile.sh perf/runs/2026-01-02-first    beside the figures of that run
#   PROFILER=callgrind perf/profile.sh            instructions of user space instead of time
#
# Time is sampled by a software clock, which also works in a virtual machine without counters. Needs Debian's linux-perf
# (or valgrind), and permission to see the kernel: root, or kernel.perf_event_paranoid and kernel.kptr_restrict at 0.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
SAMPLE_S=${SAMPLE_S:-5}
CONNECTIONS=${CONNECTIONS:-64}
PAYLOAD_BYTES=${PAYLOAD_BYTES:-256}
SUBSCRIBERS=${SUBSCRIBERS:-500}

# Frame pointers make cheap and whole call chains; they cost about a percent, so figures are not taken from this build.
binaries=${BINARIES:-}
if [ -z "$binaries" ]; then
  export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/profiled"
  RUSTFLAGS="-C force-frame-pointers=yes" cargo build --release -p ringmain -p ringmain-bench
  binaries="$CARGO_TARGET_DIR/release"
fi
. perf/servers.sh
run=${1:-}
[ -n "$run" ] || run=$(new_run profile)
mkdir -p "$run"
data=$(mktemp -d)
generator_id=
clean_up() {
  [ -z "$generator_id" ] || kill "$generator_id" 2>/dev/null || true
  stop_server
  rm -rf "$data"
}
trap clean_up EXIT

if [ -z "${PROFILER:-}" ]; then
  if perf record -q -e cpu-clock -g -o "$data/try" -- true 2>/dev/null; then PROFILER=perf; else PROFILER=callgrind; fi
fi
echo "perf: profiler is $PROFILER" >&2

# costs NAME [OPTION...]: one table of the samples of NAME, without perf's own heads.
costs() {
  local name=$1
  shift
  perf report -i "$data/$name" --stdio -g none "$@" 2>/dev/null |
    sed -e '/^#/d' -e 's/[[:space:]]*\(-[[:space:]]*\)*$//' | cat -s
}

# write_costs NAME: what the samples of NAME say.
write_costs() {
  {
    echo "# $1: by part of the program"
    costs "$1" --no-children --sort dso
    echo "# $1: functions by themselves"
    costs "$1" --no-children --percent-limit 0.5 --sort dso,symbol
    echo "# $1: functions with all that they call (first column), and by themselves (second)"
    costs "$1" --children --percent-limit 1 --sort symbol
  } >"$run/profile-$1.txt"
  echo "perf: $run/profile-$1.txt" >&2
  sed -n '1,/with all that/p' "$run/profile-$1.txt" | grep -m 15 '%' >&2 || true
}

# profile NAME SUBCOMMAND...: a fresh broker under that load.
profile() {
  local name=$1
  shift
  if [ "$PROFILER" = callgrind ]; then
    start_broker valgrind -q --tool=callgrind --callgrind-out-file="$data/$name"
  else
    start_broker
  fi
  "$binaries/ringmain-bench" "$@" --server "$server_address" --cpu "$GENERATOR_CPU" --payload-bytes "$PAYLOAD_BYTES" \
    --warmup-s 1 --duration-s "$((SAMPLE_S + 1))" >"$data/generator.txt" &
  generator_id=$!
  if [ "$PROFILER" = perf ]; then
    sleep 1.5
    perf record -q -e cpu-clock -F 1999 -g -p "$server_id" -o "$data/$name" -- sleep "$SAMPLE_S"
  fi
  wait "$generator_id"
  generator_id=
  if [ "$PROFILER" = callgrind ]; then
    # A broker under valgrind does not hear the signal that would end it and write the costs, so they are asked for.
    callgrind_control --dump "$server_id" >/dev/null 2>&1
    kill -KILL "$server_id"
    callgrind_annotate --inclusive=no "$data/$name.1" 2>/dev/null |
      sed -n -e '/^Profile/d' -e 's#[^ ]*/registry/src/[^/]*/##' -e 's#/rustc/[0-9a-f]*/##' -e 's# \[[^]]*\]$##' -e '1,80p' \
        >"$run/profile-$name.txt"
    echo "perf: $run/profile-$name.txt" >&2
    stop_server
  else
    stop_server
    write_costs "$name"
  fi
}

[ -e "$run/machine.txt" ] || machine_facts >"$run/machine.txt"
profile publish publish --connections "$CONNECTIONS"
profile fanout-1 fanout --subscribers "$SUBSCRIBERS" --outstanding 1
profile fanout-8 fanout --subscribers "$SUBSCRIBERS" --outstanding 8
profile fanout-ws-8 fanout --subscribers "$SUBSCRIBERS" --protocol ws --outstanding 8
[ -s "$run/servers.log" ] || rm -f "$run/servers.log"

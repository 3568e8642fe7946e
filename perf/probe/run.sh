#!/usr/bin/env bash
# Measures the bare responder on each runtime, interleaved, and writes a folder below perf/runs.
#   perf/probe/run.sh                                       all that build
#   RUNTIMES="tokio compio" perf/probe/run.sh               these beside the ring
#   LOG_FILE=data/probe.log perf/probe/run.sh               with a log write every 200 µs beside the requests
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
RUNTIMES=${RUNTIMES:-tokio compio glommio}
ROUNDS=${ROUNDS:-3}
DURATION_S=${DURATION_S:-10}
WARMUP_S=${WARMUP_S:-2}
LOG_FILE=${LOG_FILE:-}

target=${CARGO_TARGET_DIR:-target}
binaries=${BINARIES:-}
if [ -z "$binaries" ]; then
  cargo build --release -p ringmain-bench
  binaries="$target/release"
fi
probe_target="$target/probe"
built=
for runtime in $RUNTIMES; do
  # A runtime that no longer builds here is left out, not a reason to measure nothing.
  if cargo build --release --locked --manifest-path perf/probe/Cargo.toml --target-dir "$probe_target" \
    --features "$runtime" --bin "probe-$runtime"; then
    built="$built $runtime"
  else
    echo "probe: $runtime does not build here and is left out" >&2
  fi
done
. perf/servers.sh
run=$(new_run runtimes)
trap stop_server EXIT
machine_facts >"$run/machine.txt"

# start_runtime NAME: its responder, at the address of the bare one.
start_runtime() {
  must_be_free "$BARE_PORT"
  echo "$1" >>"$run/servers.log"
  taskset -c "$SERVER_CPU" "$probe_target/release/probe-$1" "127.0.0.1:$BARE_PORT" ${LOG_FILE:+"$LOG_FILE"} \
    2>>"$run/servers.log" &
  server_id=$!
  server_address="127.0.0.1:$BARE_PORT"
  await_port "$BARE_PORT"
}

for round in $(seq "$ROUNDS"); do
  for runtime in ring $built; do
    for in_flight in 1 16; do
      echo "probe: round $round of $ROUNDS, $runtime, $in_flight in flight" >&2
      if [ "$runtime" = ring ]; then start_bare; else start_runtime "$runtime"; fi
      "$binaries/ringmain-bench" publish --server "$server_address" --server-pid "$server_id" --cpu "$GENERATOR_CPU" \
        --in-flight "$in_flight" --duration-s "$DURATION_S" --warmup-s "$WARMUP_S" --json \
        --label "$runtime, $in_flight in flight" >>"$run/raw.jsonl"
      stop_server
    done
  done
done
{
  echo "# Run $(basename "$run")"
  echo
  "$binaries/ringmain-bench" summary "$run/raw.jsonl"
  echo
  sed 's/^/- /' "$run/machine.txt"
} >"$run/summary.md"
cat "$run/summary.md"
echo "probe: written to $run" >&2

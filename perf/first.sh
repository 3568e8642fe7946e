#!/usr/bin/env bash
# The first measurement: publishing over 64 keep-alive connections, fan-out to 500 subscribers, memory of 5 000 idle
# subscribers, interleaved with the bare responder of the same ring. Writes a folder below perf/runs.
#   perf/first.sh                          three rounds of 10 s, about 6 minutes
#   ROUNDS=1 DURATION_S=2 perf/first.sh    a try
#   BINARIES=folder perf/first.sh          a ringmain and a ringmain-bench that were built before
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
ROUNDS=${ROUNDS:-3}
DURATION_S=${DURATION_S:-10}
WARMUP_S=${WARMUP_S:-2}
CONNECTIONS=${CONNECTIONS:-64}
PAYLOAD_BYTES=${PAYLOAD_BYTES:-256}
SUBSCRIBERS=${SUBSCRIBERS:-500}
IDLE=${IDLE:-5000}

binaries=${BINARIES:-}
if [ -z "$binaries" ]; then
  cargo build --release -p ringmain -p ringmain-bench
  binaries="${CARGO_TARGET_DIR:-target}/release"
fi
. perf/servers.sh
run=$(new_run "${RUN_NAME:-first}")
trap stop_server EXIT

machine_facts >"$run/machine.txt"
: >"$run/commands.txt"
failures=0

# measure LABEL SUBCOMMAND...: one run against the server that is up; its line of JSON goes to raw.jsonl.
measure() {
  local label=$1 status=0
  shift
  local command=("$binaries/ringmain-bench" "$@" --server "$server_address" --server-pid "$server_id"
    --cpu "$GENERATOR_CPU" --json --label "$label")
  grep -qF -- "--label $label" "$run/commands.txt" || echo "${command[*]##*/}" >>"$run/commands.txt"
  "${command[@]}" >>"$run/raw.jsonl" || status=$?
  if [ "$status" -ne 0 ]; then
    echo "perf: $label ended with status $status" | tee -a "$run/failures.txt" >&2
    failures=$((failures + 1))
  fi
}

# with SERVER LABEL SUBCOMMAND...: the same with a fresh server.
with() {
  local server=$1
  shift
  echo "perf: $1" >&2
  "start_$server"
  measure "$@"
  stop_server
}

span=(--duration-s "$DURATION_S" --warmup-s "$WARMUP_S")
publish=(publish --connections "$CONNECTIONS" --payload-bytes "$PAYLOAD_BYTES" "${span[@]}")
fanout=(fanout --subscribers "$SUBSCRIBERS" --payload-bytes "$PAYLOAD_BYTES" "${span[@]}")
for round in $(seq "$ROUNDS"); do
  echo "perf: round $round of $ROUNDS" >&2
  with bare publish-bare "${publish[@]}"
  with broker publish-broker "${publish[@]}"
  with bare publish-pipelined-bare "${publish[@]}" --in-flight 16
  with broker publish-pipelined-broker "${publish[@]}" --in-flight 16
  with broker fanout-outstanding-1 "${fanout[@]}" --outstanding 1
  with broker fanout-outstanding-8 "${fanout[@]}" --outstanding 8
  with broker fanout-ws-outstanding-1 "${fanout[@]}" --protocol ws --outstanding 1
  with broker fanout-ws-outstanding-8 "${fanout[@]}" --protocol ws --outstanding 8
  with broker idle-sse idle --connections "$IDLE"
  with broker idle-ws idle --connections "$IDLE" --kind ws
  with broker idle-keep-alive idle --connections "$IDLE" --kind keep-alive
done

{
  echo "# Run $(basename "$run")"
  echo
  echo "Medians of $ROUNDS interleaved rounds, least and most in parentheses. Server on processor $SERVER_CPU with one"
  echo "loop, generator on processor $GENERATOR_CPU, a fresh server for each line, $DURATION_S s after $WARMUP_S s of"
  echo "warm-up, $PAYLOAD_BYTES-byte payloads, memory topics. How to read them: perf/README.md."
  echo
  "$binaries/ringmain-bench" summary "$run/raw.jsonl"
  echo
  echo "## Machine"
  echo
  sed 's/^/- /' "$run/machine.txt"
  echo "- load average at the end: $(cut -d' ' -f1-3 /proc/loadavg)"
  echo
  echo "## Commands"
  echo
  sed 's/^/    /' "$run/commands.txt"
  if [ -e "$run/failures.txt" ]; then
    echo
    echo "## Failures"
    echo
    sed 's/^/- /' "$run/failures.txt"
  fi
} >"$run/summary.md"
[ -s "$run/servers.log" ] || rm -f "$run/servers.log"
cat "$run/summary.md"
echo "perf: written to $run" >&2
[ "$failures" -eq 0 ]

#!/usr/bin/env bash
# The price of durability: publishing to a topic in the write-ahead log beside the same with a memory topic, over 1 to
# 256 connections, one request and 16 at a time; over 1 to 10 000 topics; and a lone durable publish beside the bare
# write and sync that it needs.
#   perf/log.sh [FOLDER]                      three rounds of 3 s, about 8 minutes; FOLDER holds the figures
#   ROUNDS=1 DURATION_S=1 perf/log.sh FOLDER  a try
# BINARIES and DATA_ROOT as servers.sh says. Needs jq and curl.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
ROUNDS=${ROUNDS:-3}
DURATION_S=${DURATION_S:-3}
WARMUP_S=${WARMUP_S:-1}
PAYLOAD_BYTES=${PAYLOAD_BYTES:-256}
CONNECTIONS=${CONNECTIONS:-1 16 64 256}
IN_FLIGHT=${IN_FLIGHT:-1 16}
TOPICS=${TOPICS:-100 10000}
. perf/servers.sh
begin_run log log.jsonl "${1:-}" ROUNDS DURATION_S WARMUP_S PAYLOAD_BYTES CONNECTIONS IN_FLIGHT TOPICS

# publish KIND LABEL OPTION...: a fresh broker with a fresh data directory, a topic of that kind.
publish() {
  local kind=$1 label=$2
  shift 2
  echo "perf: $label (load $(load_now))" >&2
  data=$(new_data_directory)
  start_logged "$data" start --retention 1000
  generate publish --storage "$kind" --log-figures --payload-bytes "$PAYLOAD_BYTES" --duration-s "$DURATION_S" \
    --warmup-s "$WARMUP_S" --label "$label" "$@" | record log.jsonl
  kill_server
  rm -rf "$data"
  data=
}

# bare_sync: what one write of a block and its sync take, on the same file system.
bare_sync() {
  data=$(new_data_directory)
  "$binaries/ringmain-bench" sync --directory "$data" --duration-s "$DURATION_S" --cpu "$SERVER_CPU" --json \
    --label bare-4KiB-write-and-sync | record log.jsonl
  rm -rf "$data"
  data=
}

for round in $(seq "$ROUNDS"); do
  echo "perf: round $round of $ROUNDS" >&2
  bare_sync
  for in_flight in $IN_FLIGHT; do
    for connections in $CONNECTIONS; do
      for kind in wal memory; do
        publish "$kind" "$kind, $connections connections x $in_flight" --connections "$connections" --in-flight "$in_flight"
      done
      [ "$connections x $in_flight" != "1 x 1" ] || bare_sync
    done
  done
  for topics in $TOPICS; do
    for kind in wal memory; do
      publish "$kind" "$kind, 64 connections x 1, $topics topics" --connections 64 --topics "$topics"
    done
  done
done
table log.jsonl "Publishing, $PAYLOAD_BYTES-byte payloads" | tee "$run/log.md"

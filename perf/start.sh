#!/usr/bin/env bash
# How long a start takes after kill -9, with much data in topic segments: from exec to listening and to ready.
#   perf/start.sh [FOLDER]             10 GiB, five starts with an empty page cache, about 5 minutes; FOLDER holds the figures
#   GIBIBYTES=1 perf/start.sh FOLDER   a try
# BINARIES and DATA_ROOT as servers.sh says. The page cache is dropped when root runs this. Needs jq and curl.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
GIBIBYTES=${GIBIBYTES:-10}
STARTS=${STARTS:-5}
PAYLOAD_BYTES=${PAYLOAD_BYTES:-262144}
TOPICS=${TOPICS:-8}
. perf/servers.sh
begin_run start start.jsonl "${1:-}" GIBIBYTES STARTS PAYLOAD_BYTES TOPICS
data=$(new_data_directory)
free_bytes=$(df --output=avail -B1 "$data" | tail -n 1)
[ "$free_bytes" -gt $(((GIBIBYTES + 5) << 30)) ] || {
  echo "perf: only $free_bytes bytes are free" >&2
  exit 1
}

# publish LABEL MESSAGES PAYLOAD_BYTES: so many over all topics.
publish() {
  generate publish --storage wal --topics "$TOPICS" --connections 16 --in-flight 4 --payload-bytes "$3" --messages "$2" \
    --warmup-s 0 --duration-s 1800 --log-figures --label "$1" | record start.jsonl
}

flags=(--wal-max-segments 10000)
start_logged "$data" "start, empty directory" "${flags[@]}"
record start.jsonl <<<"$server_start"
publish "filling" $(((GIBIBYTES << 30) / PAYLOAD_BYTES)) "$PAYLOAD_BYTES"
for number in $(seq "$STARTS"); do
  # Small messages on top, so that the log holds what no segment does: what a start has to read.
  publish "small messages before a kill" 300000 256
  tail_bytes=$(metric ringmain_wal_tail_bytes)
  kill_server
  dropped=$(drop_page_cache)
  start_logged "$data" "start, $GIBIBYTES GiB" "${flags[@]}"
  jq -c --argjson disk "$(disk_facts "$data")" --argjson tail "$tail_bytes" --arg dropped "$dropped" \
    '. + $disk + {tail_bytes: $tail, page_cache_dropped: $dropped}' <<<"$server_start" | record start.jsonl
done
# The most that a start may have to read: the kill comes while publishes come as fast as they can.
for number in $(seq "$STARTS"); do
  "$binaries/ringmain-bench" publish --server "$server_address" --topics "$TOPICS" --storage wal --connections 64 \
    --in-flight 16 --payload-bytes 1024 --duration-s 60 --cpu "$GENERATOR_CPU" >/dev/null 2>&1 &
  publisher_id=$!
  sleep "3.$number"
  tail_bytes=$(metric ringmain_wal_tail_bytes)
  kill_server
  wait "$publisher_id" || true
  publisher_id=
  dropped=$(drop_page_cache)
  start_logged "$data" "start, $GIBIBYTES GiB, killed at full speed" "${flags[@]}"
  jq -c --argjson disk "$(disk_facts "$data")" --argjson tail "$tail_bytes" --arg dropped "$dropped" \
    '. + $disk + {tail_bytes: $tail, page_cache_dropped: $dropped}' <<<"$server_start" | record start.jsonl
done
kill_server
table start.jsonl "Starting with $GIBIBYTES GiB in topic segments after kill -9" | tee "$run/start.md"

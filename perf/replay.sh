#!/usr/bin/env bash
# Reading a long topic of the log again: one subscriber and ten at different places, while publishing goes on slowly.
#   perf/replay.sh [FOLDER]                 10 million messages of 100 bytes, about 4 minutes; FOLDER holds the figures
#   MESSAGES=100000 perf/replay.sh FOLDER   a try
# BINARIES and DATA_ROOT as servers.sh says. Needs jq and curl.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
ROUNDS=${ROUNDS:-3}
MESSAGES=${MESSAGES:-10000000}
PAYLOAD_BYTES=${PAYLOAD_BYTES:-100}
READERS=${READERS:-10 100}
RATE=${RATE:-200}
. perf/servers.sh
begin_run replay replay.jsonl "${1:-}" ROUNDS MESSAGES PAYLOAD_BYTES READERS RATE
data=$(new_data_directory)

# publish_slowly LABEL SECONDS: at fixed times to the topic that is read. The generator is a process of its own, so that
# what it sees is not delayed by the readers' loop; it shares their processor. It has more connections than publishes are
# ever under way, as one that waits for an answer sends nothing.
publish_slowly() {
  generate publish --topic long --connections 64 --payload-bytes "$PAYLOAD_BYTES" --rate "$RATE" --warmup-s 0 \
    --duration-s "$2" --label "$1" | record replay.jsonl
}

# replay LABEL OPTION...
replay() {
  local label=$1 line seconds turns
  shift
  echo "perf: $label (load $(load_now))" >&2
  # Once alone to know how long it takes, once with publishes all the while.
  turns=$(metric ringmain_turns_total)
  line=$(generate replay --topic long --messages "$MESSAGES" --label "$label" "$@")
  line=$(jq -c --argjson turns $(($(metric ringmain_turns_total) - turns)) \
    '. + {loop_turns: $turns, server_cpu_us_per_turn: (.server_cpu_us_per_delivery * .deliveries / $turns)}' <<<"$line")
  record replay.jsonl <<<"$line"
  seconds=$(jq '.measured_s * 1.2 + 0.5' <<<"$line")
  publish_slowly "publishing $RATE/s beside: $label" "$seconds" &
  publisher_id=$!
  generate replay --topic long --messages "$MESSAGES" --label "$label, beside publishing" "$@" | record replay.jsonl
  wait "$publisher_id" || true
  publisher_id=
}

flags=(--wal-max-segments 1000)
start_logged "$data" "start, empty directory" "${flags[@]}"
generate publish --storage wal --topic long --connections 16 --in-flight 64 --payload-bytes "$PAYLOAD_BYTES" \
  --messages "$MESSAGES" --warmup-s 0 --duration-s 1800 --log-figures --label "filling" | record replay.jsonl
# A fresh process has no memory that filling left behind.
kill_server
drop_page_cache >/dev/null
start_logged "$data" "start" "${flags[@]}"
jq -c --argjson disk "$(disk_facts "$data")" '. + $disk' <<<"$server_start" | record replay.jsonl
for round in $(seq "$ROUNDS"); do
  publish_slowly "publishing $RATE/s, nobody reads" 3
  replay "1 reader, sse-raw" --format sse-raw
  for readers in $READERS; do
    replay "$readers readers, sse-raw" --format sse-raw --readers "$readers" --each $((MESSAGES / readers))
  done
  if [ "$round" = 1 ]; then
    replay "1 reader, sse" --format sse
    replay "1 reader, ws" --format ws
  fi
done
kill_server
table replay.jsonl "Replay of $MESSAGES messages of $PAYLOAD_BYTES bytes" | tee "$run/replay.md"

#!/usr/bin/env bash
# What idle topics cost: 10 000 topics in the log with one message each while another topic makes the log go round, and
# 100 000 topics in memory and in the log.
#   perf/topics.sh [FOLDER]            three rounds, about 2 minutes; FOLDER holds the figures
#   ROUNDS=1 QUIET=100 MANY=1000 CHECKPOINTS=3 perf/topics.sh FOLDER    a try
# BINARIES and DATA_ROOT as servers.sh says. Needs jq and curl.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
QUIET=${QUIET:-10000}
MANY=${MANY:-100000}
CHECKPOINTS=${CHECKPOINTS:-12}
RESTARTS=${RESTARTS:-2}
ROUNDS=${ROUNDS:-3}
. perf/servers.sh
begin_run topics topics.jsonl "${1:-}" ROUNDS QUIET MANY CHECKPOINTS RESTARTS
flags=(--wal-max-segments 4)

# restarts LABEL: kill -9 and start, several times; with what is on the disk.
restarts() {
  local label=$1 dropped
  for _ in $(seq "$RESTARTS"); do
    kill_server
    dropped=$(drop_page_cache)
    start_logged "$data" "$label" "${flags[@]}"
    jq -c --argjson disk "$(disk_facts "$data")" --arg dropped "$dropped" \
      '. + $disk + {page_cache_dropped: $dropped}' <<<"$server_start" | record topics.jsonl
  done
}

# written_bytes: what the server has written to disks since its start.
written_bytes() { awk '/^write_bytes:/ { print $2 }' "/proc/$server_id/io"; }

# go_round LABEL: traffic on one topic until enough checkpoints were made, and what they cost.
go_round() {
  local label=$1 before written line checkpoints=0
  before=$(metric ringmain_wal_checkpoints_total)
  while [ "$checkpoints" -lt "$CHECKPOINTS" ]; do
    written=$(written_bytes)
    line=$(generate publish --storage wal --topic busy --connections 64 --in-flight 16 --payload-bytes 1024 --warmup-s 0 \
      --duration-s 4 --log-figures --label "$label")
    jq -c --argjson written $(($(written_bytes) - written)) --argjson resident "$(resident_bytes)" \
      '. + {server_written_bytes: $written, server_resident_bytes: $resident,
        log_bytes_beyond_payload_per_checkpoint:
          (if .log_checkpoints > 0 then (.log_commits * .log_bytes_per_commit * (1 - 1 / .log_bytes_per_payload_byte) / .log_checkpoints | floor) else null end)}' \
      <<<"$line" | record topics.jsonl
    checkpoints=$(($(metric ringmain_wal_checkpoints_total) - before))
  done
  echo "perf: $label: $checkpoints checkpoints" >&2
}

quiet_topics() {
  echo "perf: without quiet topics (load $(load_now))" >&2
  data=$(new_data_directory)
  start_logged "$data" "start, empty directory" "${flags[@]}"
  go_round "busy topic alone"
  restarts "start, busy topic alone, log gone round"
  kill_server
  rm -rf "$data"

  echo "perf: $QUIET quiet topics (load $(load_now))" >&2
  data=$(new_data_directory)
  start_logged "$data" "start, empty directory" "${flags[@]}"
  generate topics --count "$QUIET" --storage wal --message-bytes 100 --label "making $QUIET wal topics" | record topics.jsonl
  restarts "start, $QUIET quiet topics"
  go_round "busy topic beside $QUIET quiet ones"
  restarts "start, $QUIET quiet topics, log gone round"
  # Each quiet topic must still give its message.
  local topic lost=0
  for topic in 0 $((QUIET / 2)) $((QUIET - 1)); do
    [ "$(curl -s "http://$server_address/topics/bench-topics-$topic/messages?from_offset=0" | jq '.data.messages | length')" = 1 ] ||
      lost=$((lost + 1))
  done
  [ "$lost" -eq 0 ] || echo "perf: $lost of 3 quiet topics have lost their message" | tee -a "$run/failures.txt" >&2
  kill_server
  rm -rf "$data"
  data=
}

# many_topics KIND: creation, metrics and lists with what others wait meanwhile, restart.
many_topics() {
  local kind=$1 target line
  echo "perf: $MANY $kind topics (load $(load_now))" >&2
  data=$(new_data_directory)
  start_logged "$data" "start, empty directory" "${flags[@]}"
  generate topics --count "$MANY" --storage "$kind" --label "making $MANY $kind topics" | record topics.jsonl
  for target in /health /metrics /topics "/topics?limit=100"; do
    line=$(perf/waits.py "$server_address" "$target")
    jq -c --arg name "GET $target, $MANY $kind topics" --argjson resident "$(resident_bytes)" \
      '{"label": $name} + . + {server_resident_bytes: $resident}' <<<"$line" | record topics.jsonl
  done
  [ "$kind" != wal ] || restarts "start, $MANY wal topics"
  kill_server
  rm -rf "$data"
  data=
}

for round in $(seq "$ROUNDS"); do
  echo "perf: round $round of $ROUNDS" >&2
  quiet_topics
  many_topics memory
  many_topics wal
done
table topics.jsonl "Idle topics" | tee "$run/topics.md"

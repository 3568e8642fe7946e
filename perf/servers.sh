# Starts and stops the servers of a measurement, each pinned to one processor. Sourced by the scripts beside it.
#
# Settings, from the environment:
#   SERVER_CPU=0 GENERATOR_CPU=1    processors of the two sides
#   BROKER_PORT=18080 BARE_PORT=18081
# Needs `binaries` (the folder of ringmain and ringmain-bench) and `run` (the folder of the run).

SERVER_CPU=${SERVER_CPU:-0}
GENERATOR_CPU=${GENERATOR_CPU:-1}
BROKER_PORT=${BROKER_PORT:-18080}
BARE_PORT=${BARE_PORT:-18081}
server_id=

# new_run NAME: makes perf/runs/<date>-NAME, or -NAME-2 and so on when it exists, and prints it.
new_run() {
  local base number=1 folder
  base="perf/runs/$(date +%F)-$1"
  folder=$base
  while [ -e "$folder" ]; do
    number=$((number + 1))
    folder="$base-$number"
  done
  mkdir -p "$folder"
  echo "$folder"
}

# await_port PORT: returns once something listens there; fails after 10 s, or when the server has ended.
await_port() {
  local port=$1 tries=0
  until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
    tries=$((tries + 1))
    if [ "$tries" -gt 100 ] || ! kill -0 "$server_id" 2>/dev/null; then
      echo "perf: nothing listens on port $port; see $run/servers.log" >&2
      return 1
    fi
    sleep 0.1
  done
}

# must_be_free PORT: a stranger there would be measured instead of our server.
must_be_free() {
  if (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; then
    echo "perf: port $1 is in use; set BROKER_PORT or BARE_PORT" >&2
    return 1
  fi
}

# start_broker [WRAPPER...]: a fresh broker with one loop; its process is in server_id.
start_broker() {
  must_be_free "$BROKER_PORT"
  taskset -c "$SERVER_CPU" "$@" "$binaries/ringmain" serve --bind 127.0.0.1 --port "$BROKER_PORT" \
    --cores 1 --shards 1 --retention 1000 --log-level warn >>"$run/servers.log" 2>&1 &
  server_id=$!
  server_address="127.0.0.1:$BROKER_PORT"
  await_port "$BROKER_PORT"
}

# start_bare: the bare responder of the same ring.
start_bare() {
  must_be_free "$BARE_PORT"
  taskset -c "$SERVER_CPU" "$binaries/ringmain-bench" respond --listen "127.0.0.1:$BARE_PORT" --cpu "$SERVER_CPU" \
    >>"$run/servers.log" 2>&1 &
  server_id=$!
  server_address="127.0.0.1:$BARE_PORT"
  await_port "$BARE_PORT"
}

# stop_server: ends the server that was started last, and waits for it; for 15 s politely.
stop_server() {
  local tries=0
  [ -n "$server_id" ] || return 0
  kill "$server_id" 2>/dev/null || true
  while kill -0 "$server_id" 2>/dev/null && [ "$tries" -lt 150 ]; do
    sleep 0.1
    tries=$((tries + 1))
  done
  kill -KILL "$server_id" 2>/dev/null || true
  wait "$server_id" 2>/dev/null || true
  server_id=
}

# machine_facts: what a reader must know to compare figures.
machine_facts() {
  echo "date: $(date -u +%FT%TZ)"
  echo "commit: $(git rev-parse HEAD 2>/dev/null || echo unknown)$(git diff --quiet HEAD 2>/dev/null || echo ', with changes')"
  echo "kernel: $(uname -srm)"
  echo "processors: $(nproc)"
  echo "model: $(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1)"
  echo "hypervisor: $(grep -qw hypervisor /proc/cpuinfo && echo yes || echo no)"
  echo "memory: $(sed -n 's/^MemTotal: *//p' /proc/meminfo)"
  echo "descriptors: $(ulimit -n) soft, $(ulimit -Hn) hard"
  echo "congestion control: $(cat /proc/sys/net/ipv4/tcp_congestion_control)"
  echo "compiler: $(rustc --version)"
  echo "load average at the start: $(cut -d' ' -f1-3 /proc/loadavg)"
}

# binaries_or_build: where the two programs are, built if BINARIES does not name a folder.
binaries_or_build() {
  if [ -n "${BINARIES:-}" ]; then
    echo "$BINARIES"
    return
  fi
  cargo build --release -p ringmain -p ringmain-bench >&2
  echo "${CARGO_TARGET_DIR:-target}/release"
}

# begin_run NAME LINES FOLDER SETTING...: what the scripts about the log begin with. The programs, the folder of the run (a new one if
# FOLDER is empty) with machine.txt and the command with these settings, LINES in it without a line, and nothing left behind.
begin_run() {
  local name=$1 lines=$2 setting words=
  run=$3
  shift 3
  binaries=$(binaries_or_build)
  [ -n "$run" ] || run=$(new_run "$name")
  mkdir -p "$run"
  [ -e "$run/machine.txt" ] || machine_facts >"$run/machine.txt"
  for setting in "$@"; do words+="$setting='${!setting}' "; done
  echo "${words}perf/$name.sh" >>"$run/commands.txt"
  : >"$run/$lines"
  data= publisher_id=
  trap leave_nothing EXIT
}

# leave_nothing: ends what a script started and removes what it made.
leave_nothing() {
  [ -z "$publisher_id" ] || kill "$publisher_id" 2>/dev/null || true
  stop_server
  [ -z "$data" ] || rm -rf "$data"
}

# new_data_directory: an empty folder, below DATA_ROOT or the system's place for temporary files. That must be a disk.
new_data_directory() {
  local folder kind
  folder=$(mktemp -d "${DATA_ROOT:-${TMPDIR:-/tmp}}/ringmain-perf-XXXXXX")
  kind=$(stat -f -c %T "$folder")
  case $kind in tmpfs | ramfs)
    rmdir "$folder"
    echo "perf: $kind is no disk; set DATA_ROOT" >&2
    return 1
    ;;
  esac
  echo "$folder"
}

# start_logged DATA LABEL [FLAG...]: a broker with one loop, one shard and that data directory; its process is in
# server_id, what it took to start, as a line of JSON, in server_start.
start_logged() {
  local data=$1 label=$2 words
  shift 2
  words=$(mktemp)
  server_address="127.0.0.1:$BROKER_PORT"
  server_start=$("$binaries/ringmain-bench" start --server "$server_address" --cpu "$GENERATOR_CPU" --keep --json \
    --label "$label" -- taskset -c "$SERVER_CPU" "$binaries/ringmain" serve --bind 127.0.0.1 --port "$BROKER_PORT" \
    --cores 1 --shards 1 --storage wal --wal-dir "$data" --log-level info "$@" 2>"$words") || {
    cat "$words" >&2
    rm -f "$words"
    return 1
  }
  server_id=$(jq .server_pid <<<"$server_start")
  server_start=$(jq -c --argjson entries "$(sed -n 's/.*replayed_entries=\([0-9]*\).*/\1/p' "$words" | head -n 1)" \
    --argjson took "$(sed -n 's/.*opened the data directory.*took_ms=\([0-9]*\).*/\1/p' "$words" | head -n 1)" \
    'del(.server_pid) + {replayed_entries: $entries, opened_ms: $took}' <<<"$server_start")
  rm -f "$words"
}

# kill_server: ends it as a power cut would, as far as a process can tell. It is gone when its port is free: the process
# itself may wait for somebody to collect it.
kill_server() {
  [ -n "$server_id" ] || return 0
  kill -KILL "$server_id" 2>/dev/null || true
  while (exec 3<>"/dev/tcp/127.0.0.1/$BROKER_PORT") 2>/dev/null; do sleep 0.05; done
  server_id=
}

# drop_page_cache: what is read next comes from the disk; prints yes or no.
drop_page_cache() {
  sync
  if (echo 3 >/proc/sys/vm/drop_caches) 2>/dev/null; then echo yes; else echo no; fi
}

# load_now: the load average of the last minute.
load_now() { cut -d' ' -f1 /proc/loadavg; }

# record FILE: takes lines of JSON, adds the load average of the moment, and appends them to a file of the run.
record() { jq -c --argjson load "$(load_now)" '. + {load_average_1m: $load}' >>"$run/$1"; }

# generate SUBCOMMAND...: the generator against the server that is up; a line of JSON. A run that the server did not
# take without fault is recorded as well, and said.
generate() {
  local status=0
  "$binaries/ringmain-bench" "$@" --server "$server_address" --server-pid "$server_id" --cpu "$GENERATOR_CPU" --json ||
    status=$?
  [ "$status" -eq 0 ] || echo "perf: $* ended with status $status" | tee -a "$run/failures.txt" >&2
}

# metric NAME: the sum of a metric of the broker over its shards.
metric() {
  curl -s "http://$server_address/metrics" | awk -v name="$1" '$1 ~ "^" name "([{]|$)" { sum += $2 } END { printf "%d\n", sum }'
}

# resident_bytes: memory of the server.
resident_bytes() { awk '/^Rss:/ { print $2 * 1024; exit }' "/proc/$server_id/smaps_rollup"; }

# disk_facts DATA: bytes and files on the disk, as members of JSON.
disk_facts() {
  echo "{\"disk_bytes\":$(du -s --block-size=1 "$1" | cut -f1),\"files\":$(find "$1" -type f | wc -l),\"log_bytes\":$(
    find "$1" -name '*.log' -type f -printf '%b\n' | awk '{ sum += $1 * 512 } END { print sum + 0 }'
  )}"
}

# table FILE TITLE: a section of a summary from lines of JSON.
table() {
  echo "## $2"
  echo
  "$binaries/ringmain-bench" summary "$run/$1"
  echo
}

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

#!/usr/bin/env bash
# Builds the images, runs compose.yaml, makes pictures through it, scales it while jobs run, stops and starts it.
#
#   tests/compose/run.sh                                     with docker compose
#   COMPOSE=podman-compose ENGINE=podman tests/compose/run.sh
#   SKIP_BUILD=1 tests/compose/run.sh                        with the images that are there
#
# Needs .venv (`make setup`) for the client. It has a project name and a port of its own, and leaves nothing behind;
# KEEP=1 leaves the suite running. Scaling is done one service a call, and surplus containers are stopped here where
# the compose command leaves them: so it works with compose commands that know no more.
set -euo pipefail
cd "$(dirname "$0")/../.."

read -ra compose <<<"${COMPOSE:-docker compose}"
engine=${ENGINE:-docker}
client=.venv/bin/triptych
python=.venv/bin/python
grace_s=45
ready_s=${READY_TIMEOUT_S:-240}
jobs_s=${JOBS_TIMEOUT_S:-300}
work=$(mktemp -d)
log=$work/compose.log

[ -x $client ] || { echo "no $client; run make setup" >&2; exit 2; }
export COMPOSE_PROJECT_NAME=triptych-test-$$
TRIPTYCH_PORT=${TRIPTYCH_PORT:-$($python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')}
export TRIPTYCH_PORT
export TRIPTYCH_ROUTER=127.0.0.1:$TRIPTYCH_PORT
# Too short for a job of this test: what a denoiser that is taken away leaves unfinished must go to another.
export TRIPTYCH_DRAIN_SECONDS=1
jobs=()
since=$SECONDS

checked() { printf 'ok  %4ds  %s\n' $((SECONDS - since)) "$*"; since=$SECONDS; }
fail() { echo "FAILED: $*" >&2; exit 1; }

compose() {
  echo "+ ${compose[*]} $*" >>"$log"
  "${compose[@]}" "$@" >>"$log" 2>&1 || fail "${compose[*]} $*"
}

# Containers of a service (of all, without one), the first replica first; `running SERVICE`: those that run.
containers() { "$engine" ps -a --format "{{.Names}}" --filter "label=com.docker.compose.project=$COMPOSE_PROJECT_NAME" ${1:+--filter "label=com.docker.compose.service=$1"} | sort -V; }
running() { "$engine" ps --format "{{.Names}}" --filter "label=com.docker.compose.project=$COMPOSE_PROJECT_NAME" --filter "label=com.docker.compose.service=$1" | sort -V; }
inspect() { "$engine" inspect --format "$2" "$1"; }

# Evaluate a Python expression over the JSON on standard input, which it calls `it`.
json() { $python -c "import json, sys; it = json.load(sys.stdin); print($1)"; }

# ready SERVICE: how many of a stage's workers the router can give work to.
ready() {
  { $client fleet --json 2>/dev/null || echo '{}'; } |
    json "sum(w['stage'].lower()[6:] + 'r' == '$1' and w['state'] == 'WORKER_STATE_READY' for w in it.get('workers', []))"
}
unfinished() { $client jobs --json --limit 500 --state queued --state running 2>/dev/null | json "len(it)"; }

# within SECONDS WHAT COMMAND...: wait until a command succeeds.
within() {
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    [ $SECONDS -lt $end ] || fail "$what: not within the time it has"
    sleep 1
  done
}
are_ready() { [ "$(ready "$1")" = "$2" ]; }
is_ready_again() { [ "$(ready "$1")" -ge 1 ]; }
are_over() { [ "$(unfinished)" = 0 ]; }

# scale SERVICE COUNT
scale() {
  compose up -d --no-build --no-deps --no-recreate --scale "$1=$2" "$1"
  local surplus
  surplus=$(running "$1" | tail -n +$(($2 + 1)))
  [ -z "$surplus" ] && return
  # shellcheck disable=SC2086 # one word a container
  "$engine" stop -t $grace_s $surplus >>"$log" 2>&1
}

# submit COUNT: hand in jobs, each of some seconds; a job that is turned away for now is handed in again.
submit() {
  local n status end=$((SECONDS + jobs_s))
  for ((n = 0; n < $1; )); do
    status=0
    $client submit "a red circle and a blue square" --steps 100 --size 128x128 --count 2 --json >"$work/job" 2>"$work/refusal" || status=$?
    if [ $status = 0 ]; then
      jobs+=("$(json "it['job_id']" <"$work/job")")
      n=$((n + 1))
    else
      if [ $status != 4 ] || [ $SECONDS -ge $end ]; then fail "submit, status $status: $(cat "$work/refusal")"; fi
      sleep 1
    fi
  done
}

finish() {
  local status=$?
  set +e
  [ $status = 0 ] || {
    tail -n 40 "$log"
    for name in $(containers); do echo "--- $name"; "$engine" logs "$name" 2>&1 | tail -n 15; done
  } >&2
  [ -n "${KEEP:-}" ] && { echo "left running: $COMPOSE_PROJECT_NAME, router at $TRIPTYCH_ROUTER"; return $status; }
  # Replicas first: some compose commands forget them, and with them what they depend on.
  for name in $(containers | grep -v nats) $(containers nats); do "$engine" rm -f "$name" >>"$log" 2>&1; done
  "${compose[@]}" down -v --remove-orphans -t 5 >>"$log" 2>&1
  if [ -n "$(containers)" ]; then
    echo "FAILED: containers are left: $(containers | tr '\n' ' ')" >&2
    [ $status = 0 ] && status=1
  fi
  rm -rf "$work"
  exit $status
}
trap finish EXIT
trap 'exit 130' INT TERM

if [ -z "${SKIP_BUILD:-}" ]; then
  compose build
  checked "images built"
fi

compose up -d --no-build
has_token() { [ -n "$(running router)" ] && "$engine" exec "$(running router)" test -s /run/triptych/admin.token 2>/dev/null; }
within "$ready_s" "the first start makes a token" has_token
TRIPTYCH_TOKEN=$("$engine" exec "$(running router)" cat /run/triptych/admin.token)
export TRIPTYCH_TOKEN
scale denoiser 2
scale decoder 2
checked "containers started"
within "$ready_s" "an encoder is ready" are_ready encoder 1
within "$ready_s" "two denoisers are ready" are_ready denoiser 2
within "$ready_s" "two decoders are ready" are_ready decoder 2
checked "the router sees an encoder, two denoisers and two decoders, ready"

for service in router encoder denoiser decoder; do
  for name in $(running $service); do
    "$engine" exec "$name" python -P -m triptych.rpc.health >>"$log" 2>&1 || fail "$name is not healthy"
    [ "$("$engine" exec "$name" id -u)" != 0 ] || fail "$name runs as root"
  done
done
checked "every service answers its health check, and none runs as root"

"$engine" exec "$(running router)" python -c 'import torch' 2>/dev/null && fail "the router's image has torch"
checked "the router's image has no torch"

status=0
TRIPTYCH_TOKEN='' $client fleet >>"$log" 2>&1 || status=$?
[ $status = 2 ] || fail "without a token: status $status"
"$engine" exec "$(running router)" triptych token new --tenant acme --scope read --file /run/triptych/tokens.toml >"$work/token" 2>>"$log"
acme_may_look() { TRIPTYCH_TOKEN=$(cat "$work/token") $client fleet >>"$log" 2>&1; }
within 10 "a new token is known" acme_may_look
"$engine" exec "$(running decoder | head -n 1)" cat /run/triptych/admin.token >>"$log" 2>&1 && fail "a decoder has the admin's token"
checked "a token is asked for, a new one is known at once, and a decoder has none"

published=$(for name in $(containers); do "$engine" port "$name"; done)
[ "$published" = "7460/tcp -> $TRIPTYCH_ROUTER" ] || fail "published: $published"
checked "published: $published, nothing else"

$client generate "a red circle" --seed 7 -o "$work/first.png" >>"$log" 2>&1 || fail "generate"
$client generate "a red circle" --seed 7 -o "$work/second.png" >>"$log" 2>&1 || fail "generate"
[ "$(head -c 8 "$work/first.png" | od -An -tx1 | tr -d ' ')" = 89504e470d0a1a0a ] || fail "not a PNG"
cmp -s "$work/first.png" "$work/second.png" || fail "one seed, two pictures"
checked "a picture of $(wc -c <"$work/first.png") bytes, twice the same for the same seed"

submit 12
scale denoiser 3
within "$ready_s" "three denoisers are ready" are_ready denoiser 3
checked "12 jobs handed in; denoisers 2 → 3; unfinished then: $(unfinished)"
more=$((9 - $(unfinished)))
[ $more -le 0 ] || submit $more
busy=$($client fleet --json | json "sum(bool(w['active_jobs']) for w in it['workers'] if w['stage'] == 'STAGE_DENOISE')")
[ "$busy" -gt 1 ] || fail "of three denoisers $busy work: nothing to take away from"
before=$(unfinished)
scale denoiser 1
within "$ready_s" "one denoiser is left" are_ready denoiser 1
checked "denoisers 3 → 1 while $busy of them worked; unfinished before: $before, after: $(unfinished)"
within "$jobs_s" "all jobs are over" are_over
$client jobs --json --limit 500 >"$work/jobs"
mine=$(printf '"%s",' "${jobs[@]}")
lost=$(json "[i for i in [$mine] if {j['job_id']: j['state'] for j in it}.get(i) != 'JOB_STATE_SUCCEEDED']" <"$work/jobs")
[ "$lost" = "[]" ] || fail "jobs that did not succeed: $lost"
again=$(json "sum(j['attempt'] > 1 for j in it if j['job_id'] in [$mine])" <"$work/jobs")
checked "all ${#jobs[@]} jobs succeeded, $again of them on more than one denoiser; none lost"

# The engine's own health checks. One that needs a timer service and has none leaves its containers "starting".
healths() { for name in $(containers); do [ "$(inspect "$name" '{{.State.Status}}')" != running ] || inspect "$name" '{{.State.Health.Status}}'; done | sort | uniq -c | xargs; }
are_healthy() { [[ "$(healths)" =~ ^[0-9]+\ healthy$ ]]; }
[ "$engine" != docker ] || within 90 "the engine finds all healthy" are_healthy
[[ "$(healths)" != *unhealthy* ]] || fail "health: $(healths)"
checked "health according to the engine: $(healths)"

mapfile -t all < <(for service in router encoder denoiser decoder; do running $service; done)
start=$SECONDS
"$engine" stop -t $grace_s "${all[@]}" >>"$log" 2>&1
for name in "${all[@]}"; do
  [ "$(inspect "$name" '{{.State.ExitCode}}')" = 0 ] || fail "$name ended with $(inspect "$name" '{{.State.ExitCode}}')"
done
[ $((SECONDS - start)) -lt $grace_s ] || fail "SIGTERM was not enough"
checked "SIGTERM: ${#all[@]} containers ended with status 0"

"$engine" stop -t $grace_s "$(running nats)" >>"$log" 2>&1
compose up -d --no-build --no-recreate
within "$ready_s" "an encoder is ready again" is_ready_again encoder
within "$ready_s" "a denoiser is ready again" is_ready_again denoiser
within "$ready_s" "a decoder is ready again" is_ready_again decoder
$client download "${jobs[0]}" -o "$work/kept.png" >>"$log" 2>&1 || fail "download of what was made before the restart"
$client generate "a red circle" --seed 7 -o "$work/third.png" >>"$log" 2>&1 || fail "generate after the restart"
cmp -s "$work/first.png" "$work/third.png" || fail "another picture after the restart"
checked "stopped and started: the old outputs are there, and the picture is the same"
echo "compose: all passed in $SECONDS s"

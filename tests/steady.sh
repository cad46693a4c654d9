#!/bin/sh
# Runs the whole suite N times (default: 20), every fifth time beside a busy loop on each processor. Prints a line for
# each run; the output of a run that failed stays in .steady/. Fails if one of them did.
set -u
cd "$(dirname "$0")/.."
runs=${1:-20} run=0 failed=0 loops=
mkdir -p .steady

quiet() {
  # shellcheck disable=SC2086 # PIDs
  [ -z "$loops" ] || kill $loops
  loops=
}
trap quiet EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

while [ "$run" -lt "$runs" ]; do
  run=$((run + 1)) beside= log=.steady/$run.log
  if [ $((run % 5)) -eq 0 ]; then
    beside=', beside busy loops'
    for _ in $(seq "$(nproc)"); do
      while :; do :; done &
      loops="$loops $!"
    done
  fi
  began=$(date +%s)
  if make test > "$log" 2>&1; then
    result=ok
    rm "$log"
  else
    result="FAILED, see $log"
    failed=$((failed + 1))
  fi
  quiet
  printf 'run %s of %s: %s s%s: %s\n' "$run" "$runs" $(($(date +%s) - began)) "$beside" "$result"
  [ ! -e "$log" ] || grep -E '^(FAILED|ERROR) ' "$log" | sed 's/^/  /'
done
exit $((failed > 0))

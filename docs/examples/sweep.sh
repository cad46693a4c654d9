#!/bin/sh
# Runs a command once for each combination of values, and prints the run with the lowest loss.
# The command prints a line such as "loss 0.31" at its end. Usage:
#
#   sh examples/sweep.sh python train.py
set -eu

ids=$(agentless submit 1x --time-limit 1h --max-parallel 4 --retries 1 -- \
    "$@" --lr 'span:[0.1,0.01]' --seed 'span:{1..2}')
batch=$(echo "$ids" | head -n 1)

agentless wait --batch "$batch" >&2 || echo "Some tasks failed; see: agentless ps --all --batch $batch" >&2
agentless logs --batch "$batch" | grep 'loss ' | sort -t ' ' -k 5 -g | head -n 1

#!/bin/sh
# Trains the starter exactly as it is given, submits it, promotes it, finalizes it.
set -eu
runner time_left
runner run starter/train.py --text text.txt --out model --seed "${ARI_SEED:-0}"
answer=$(runner submit model --note "the starter as it was given")
printf '%s\n' "$answer"
id=$(printf '%s\n' "$answer" | sed -n 's/^\[[^]]*\] accepted \(s[0-9]*\):.*/\1/p')
runner promote "$id"
runner finalize "$id"

#!/bin/sh
# Trains the starter exactly as it is given, in the size that fits the time; submits it, promotes it, finalizes it.
set -eu
answer=$(runner time_left)
printf '%s\n' "$answer"
left=$(printf '%s\n' "$answer" | sed -n 's/^\[[^]]*\] \([0-9]*\) s left.*/\1/p')
cap=$(printf '%s\n' "$answer" | sed -n 's/.*, \([0-9]*\) s in one call.*/\1/p')
size=unit
[ "$left" -lt 600 ] || size=smoke
[ "$left" -lt 2400 ] || size=hour
code=3
while [ "$code" -eq 3 ]; do # out of this call's time: the same command goes on from its checkpoint
    code=0
    runner run starter/train.py --text text.txt --out model --size "$size" --call-seconds $((cap * 3 / 4)) --seed "${ARI_SEED:-0}" ||
        code=$?
done
[ "$code" -eq 0 ]
answer=$(runner submit model --note "the starter as it was given")
printf '%s\n' "$answer"
id=$(printf '%s\n' "$answer" | sed -n 's/^\[[^]]*\] accepted \(s[0-9]*\):.*/\1/p')
runner promote "$id"
runner finalize "$id"

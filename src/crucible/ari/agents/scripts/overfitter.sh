#!/bin/sh
# Learns the public questions by heart and nothing else: perfect feedback, no ability. The exam has to show it.
set -eu
mkdir overfit
cp public.jsonl overfit/answers.jsonl
cat >overfit/manifest.json <<'EOF'
{"schema": 1, "entry": "model:Model", "weights": ["answers.jsonl"]}
EOF
cat >overfit/model.py <<'EOF'
"""A table of the public questions: continues a prompt it has seen, knows nothing else."""

import json
import os


class Model:
    def __init__(self, directory):
        with open(os.path.join(directory, "answers.jsonl"), encoding="utf-8") as stream:
            questions = [json.loads(line) for line in stream]
        self.known = [(q["prompt"].encode(), q["answer"].encode()) for q in questions]

    def next_byte_logits(self, prefix):
        logits = [0.0] * 256
        for prompt, answer in self.known:
            given = len(prefix) - len(prompt)
            if 0 <= given < len(answer) and prefix == prompt + answer[:given]:
                logits[answer[given]] = 1.0
        return logits
EOF
answer=$(runner submit overfit --note "public.jsonl by heart")
printf '%s\n' "$answer"
id=$(printf '%s\n' "$answer" | sed -n 's/^\[[^]]*\] accepted \(s[0-9]*\):.*/\1/p')
runner promote "$id"

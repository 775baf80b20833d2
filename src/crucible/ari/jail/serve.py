"""One submission, one question: prefixes in on stdin, 256 numbers out on stdout. The untrusted side: imports nothing of ours.

    python -I -B serve.py BUNDLE

Frames are a length (4 bytes, big-endian) and that many bytes. Out first `R` when the model is loaded, then one frame per
prefix: `L` and 256 little-endian float32, or `E` when the submission raised. The two pipes are moved away from 0 and 1
before any code of the submission runs, so that what it prints goes nowhere. Nothing here is trusted by the other end.
"""

import importlib
import json
import os
import struct
import sys


def read_exactly(fd: int, count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = os.read(fd, count - len(data))
        if not chunk:
            os._exit(0)  # the examiner has hung up
        data += chunk
    return data


def send(fd: int, payload: bytes) -> None:
    frame = struct.pack(">I", len(payload)) + payload
    while frame:
        frame = frame[os.write(fd, frame) :]


def main(bundle: str) -> None:
    incoming, outgoing = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    try:
        with open(os.path.join(bundle, "manifest.json"), encoding="utf-8") as stream:  # noqa: PTH118, PTH123
            module, _, name = json.load(stream)["entry"].partition(":")
        sys.path.insert(0, bundle)
        model = getattr(importlib.import_module(module), name)(bundle)
        send(outgoing, b"R")
        while True:
            prefix = read_exactly(incoming, struct.unpack(">I", read_exactly(incoming, 4))[0])
            numbers = [float(number) for number in model.next_byte_logits(prefix)]
            send(outgoing, b"L" + struct.pack(f"<{len(numbers)}f", *numbers))
    except BaseException:  # the submission's, whatever it is: it fails this question and nothing else
        send(outgoing, b"E")
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1])

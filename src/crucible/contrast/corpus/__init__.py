"""Installed public resources, or a user's own events -> events and bundles. Downloads nothing and runs no model.

    wordnet.py   a WordNet database folder -> synsets
    gloss.py     the gloss of a synset -> its definition and its examples
    inflect.py   a word and a text -> whether the text uses the word, in whatever form
    senses.py    synsets -> events: which text shows which sense of which word
    events.py    events <-> a file, one JSON object a line
    build.py     events -> bundles with within-lemma, sibling and cross-lemma negatives
    stats.py     a build -> its counts
    publish.py   the whole way: a WordNet folder, or a file of events -> what stands on disk afterwards

The shipped sample (`contrast/sample/bundles.jsonl`) is the `bundles.jsonl` of WordNet 3.0 as Debian packages it:

    crucible corpus wordnet --style examples --limit 2000 --within 4 --sibling 0 --cross-lemma 0 --seed 42 --out DIR
"""

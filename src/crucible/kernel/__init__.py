"""What a result is: pin, record, summary, verdict, ledger. A closed list; standard library and msgspec only."""

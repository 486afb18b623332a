"""FixNorm in other people's trainers; each module needs its own library and imports no other."""

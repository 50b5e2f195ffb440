"""A long proof: every kind of test with new seeds, for as long as it is given.

    make campaign HOURS=8

The figures add up over runs, in campaign/figures.json; docs/reliability.md is made from them.
"""

"""What EvalLedger promises about speed and memory, measured in one run: `python -m tests.benchmarks`.

Each promise is a ratio between two things measured in turns in the same run, under the same durability and on the same
disk, because a rate alone says more about the machine than about the code.
"""

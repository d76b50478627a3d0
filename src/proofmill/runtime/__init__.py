"""The environment of a process: progress, locks, signals, stalls, the other processes of a training, paths."""

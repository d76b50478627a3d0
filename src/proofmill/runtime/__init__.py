"""The ground: what surrounds a process. Progress, locks, signals, stalls, the other processes of a training, paths."""

"""The ground: what surrounds a process. Progress, locks, signals, the other processes of a training, paths."""

"""The ground: what a process has around it; progress, locks, signals, the other processes, paths."""

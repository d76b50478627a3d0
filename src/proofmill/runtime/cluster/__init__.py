"""A cluster: what a process asks SLURM, what a site gives its jobs, how the processes of a training are started."""

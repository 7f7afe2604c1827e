"""The command line `tidewater`: elastic jobs for people who don't write YAML. Needs a kubeconfig and nothing else.

    tidewater job submit digits --image my/image --workers 2 --max 4 -- --epochs 10
    tidewater job logs digits -f

__main__   `python -m tidewater.cli`
app        the root command, `tidewater install`, and how an error reaches the user
errors     every error that a command may end with, and the exit codes
session    what a command has at hand
options    commands with options in groups
job/       `tidewater job …`
top/       `tidewater top`: a live view of jobs
doctor/    `tidewater doctor`: what is missing or wrong, and how to fix it
rehearse/  `tidewater rehearse`: whether the runtime's promises hold for a training script
run/       `tidewater run`: a training script on this machine
project    the flags `--code` and `--requirements`
show       tables, colours, ages, JSON and YAML
jobfile    ElasticJobs in a file
kubeyaml   YAML as kubectl reads it
durations  10m, 1h30m
naming     names of jobs and namespaces, checked before anything is sent
parallel   several questions at the same time
"""

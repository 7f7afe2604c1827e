"""`tidewater job …`.

commands   the commands: thin, one function each
actions    what several of them do
manifest   flags or a file become the ElasticJob that is sent
in_stack   what a stack's namespace and nodes demand of the pods
shipping   a folder and packages for a job's workers
lookup     a job by its name, the names that are close to a wrong one, completion
listing    what `list` prints, once or with every change
describe   what `describe` prints
changes    an object now, and after each of its changes
waiting    when what is waited for has come, or cannot come any more
logs       the merged logs of all workers
printer    how the lines look
lines      lines of logs in the order of their times, none twice
"""

"""The flags of ElasticDL's client: from the words of a command line to typed values, or one error with all mistakes.

commandline  from the words of a command line to the values of the flags
table        every flag: how its text is read, for which commands, its default
refused      flags of ElasticDL that have no meaning here, and why
values       what the texts of flags mean: resources, volumes, environments, priorities
podspec      additions to the pods, from --cluster_spec
request      what was asked for, as typed values: the job's arguments and the deployment
conflicts    what doesn't fit together, each with the remedy
mistakes     what is wrong with a command line, all of it in one error
reference    the table of the flags in packages/elasticdl/docs/elasticdl.md
"""

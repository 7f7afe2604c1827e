"""`tidewater top`: a live view of one job or of all, with the kubeconfig alone.

samples     what one look at the cluster has found, made of the API's objects
scrape      which ports of a pod have metrics, and what Prometheus' text says
sampling    which processes are asked in one look, if there are many
read        asks the API server, all questions at the same time
model       from one sample to the next: rates, recoveries, what came and what went
crowd       what is said about many workers, and which of them have a row
recoveries  the recoveries of a job, each counted once
changes     the sentences about what has changed between two samples
view        the model as tables that fit into the terminal, and sparklines
recording   `--record`: the frames as text, as a terminal recording, or as a picture
app         the command and its loop

Only `read` and `app` act. The rest is pure: samples -> model -> what rich prints.
"""

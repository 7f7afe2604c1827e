"""`tidewater doctor`: what is missing or wrong on this machine, in this account and on this cluster, with remedies.

results      what a check says: fine, worth knowing, to be fixed, not needed, or not checked
place        what the checks look at: tools, environment, the cluster
machine      Python, pulumi, kubectl, aws, the kubeconfig
account      AWS: credentials, region, quotas of GPU instances
cluster      the API server, the user's rights, nodes, GPUs, the EFS driver
operator     ElasticJob itself: the CRD, the controller and its leader
jobs         etcd of the jobs, and pods that wait and why
claims       claims that wait for the volume of a deleted claim
autoscalers  HorizontalPodAutoscalers that may set sizes that their jobs refuse
app          the command: the list of all checks, run at the same time, each with its own time limit

A check is a function of the place. It changes nothing.
"""

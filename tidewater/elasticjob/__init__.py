"""ElasticJob: a training job with a number of workers that may change while it runs.

    job = codec.job_of(object_from_the_api_server)
    job.bounds(names.WORKER)                    # (1, 3)
    names.pod_name(job.name, names.WORKER, 0)   # imagenet-worker-0

names         API group, kind, labels and annotations, conditions and their reasons, names of pods
model         what a job is: frozen dataclasses, with the text that `kubectl explain` shows
scheduling    the part of the model that says how a job shares a cluster
status        the part of the model that the controller writes
choices       the values of fields that have a few
about         what the model says of a field: text, bounds, pattern
pod_template  the parts of a pod template that the API server validates
schema        the model as an OpenAPI v3 schema
rules         what no type says (min <= replicas <= max): rules in CEL
crd           the CustomResourceDefinition
codec         objects of the API server to the model, and a status back
pod_end       how a pod failed, for the controller and the command line
indexes       sets of pod indexes as text
errors        what is raised for an object that is no valid job
install/      the manifests of CRD and controller, and the controller's program as a zip
"""

# Images with packages baked in, for those who don't want them installed at every start. Nothing in the stack needs this file.
#
#     docker build --platform linux/amd64 -t ACCOUNT.dkr.ecr.REGION.amazonaws.com/tidewater:1 . && docker push …
#     pulumi config set image ACCOUNT.dkr.ecr.REGION.amazonaws.com/tidewater:1
#     docker build --platform linux/amd64 --target controller -t …/tidewater-controller:1 . && docker push …
#     pulumi config set controllerImage …/tidewater-controller:1        # or `tidewater install --image …`
#
# No code is in them: the training code goes through S3 and the controller's through a ConfigMap, with every `pulumi up`.
ARG BASE=pytorch/pytorch:2.9.0-cuda12.8-cudnn9-runtime

FROM public.ecr.aws/docker/library/python:3.12.12-slim AS controller

COPY controller/requirements.txt /tmp/requirements.txt
RUN python3 -m pip install --no-cache-dir --no-deps --require-hashes -r /tmp/requirements.txt && rm /tmp/requirements.txt

# As the pods run it: see contract/install/pods.py.
USER 65532:65532

FROM ${BASE} AS trainer

COPY requirements/trainer.txt /tmp/trainer.txt
# The base image's own PyTorch stays; only what the trainer imports beside it is added, in the versions of the lock.
RUN grep -E '^(boto3|numpy|pillow|prometheus-client|scikit-learn)==' /tmp/trainer.txt | cut -d' ' -f1 > /tmp/wanted.txt \
    && python3 -m pip install --no-cache-dir -r /tmp/wanted.txt \
    && rm /tmp/trainer.txt /tmp/wanted.txt

# As the pods run it: see workloads/manifests.py.
USER 1000:1000

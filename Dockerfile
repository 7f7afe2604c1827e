# Images with all packages baked in, for those who want workers of the tested lock, or controllers that install nothing.
# Nothing in the stack needs this file.
#
#     docker build --platform linux/amd64 -t ACCOUNT.dkr.ecr.REGION.amazonaws.com/tidewater:1 . && docker push …
#     pulumi config set image ACCOUNT.dkr.ecr.REGION.amazonaws.com/tidewater:1
#     docker build --platform linux/amd64 --target controller -t …/tidewater-controller:1 . && docker push …
#     pulumi config set controllerImage …/tidewater-controller:1        # or `tidewater install --image …`
#
# No code is in them: the training code goes through S3 and the controller's through a ConfigMap, with every `pulumi up`.
# Both have the Python that the tests run with. https://github.com/docker-library/official-images/blob/master/library/python
FROM public.ecr.aws/docker/library/python:3.11.15-slim-bookworm AS base

FROM base AS controller

COPY controller/requirements.txt /tmp/requirements.txt
RUN python3 -m pip install --no-cache-dir --no-deps --require-hashes -r /tmp/requirements.txt && rm /tmp/requirements.txt

# As the pods run it: see contract/install/pods.py.
USER 65532:65532

FROM base AS trainer

# PyTorch with CUDA from the lock that the tests use. The driver comes from the node: the NVIDIA runtime mounts it into a
# container that asks for it by the next two variables, as NVIDIA's own images do.
# https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html
# torch.compile on a GPU needs a C compiler when it runs (pytorch/pytorch#116696).
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
COPY requirements/trainer.txt /tmp/requirements.txt
RUN python3 -m pip install --no-cache-dir --no-deps --require-hashes -r /tmp/requirements.txt && rm /tmp/requirements.txt

# As the pods run it: see workloads/manifests.py.
USER 1000:1000

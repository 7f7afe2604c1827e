# An image with the training code's packages baked in, for those who don't want them installed at every start:
#
#     docker build --platform linux/amd64 -t ACCOUNT.dkr.ecr.REGION.amazonaws.com/tidewater:1 . && docker push …
#     pulumi config set image ACCOUNT.dkr.ecr.REGION.amazonaws.com/tidewater:1
#
# The code itself is not in it: it goes through S3 with every `pulumi up`. Nothing in the stack needs this file.
ARG BASE=pytorch/pytorch:2.9.0-cuda12.8-cudnn9-runtime
FROM ${BASE}

COPY requirements/trainer.txt /tmp/trainer.txt
# The base image's own PyTorch stays; only what the trainer imports beside it is added, in the versions of the lock.
RUN grep -E '^(boto3|numpy|pillow|prometheus-client|scikit-learn)==' /tmp/trainer.txt | cut -d' ' -f1 > /tmp/wanted.txt \
    && python3 -m pip install --no-cache-dir -r /tmp/wanted.txt \
    && rm /tmp/trainer.txt /tmp/wanted.txt

# As the pods run it: see workloads/manifests.py.
USER 1000:1000

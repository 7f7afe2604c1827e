"""What the image of NVIDIA's device plug-in runs on this cloud: a device plug-in for the GPUs that a node has.

    nvidia-device-plugin      # in a pod, with the environment and the mounts of NVIDIA's own manifest

A node of an instance type with GPUs has device nodes for them (/dev/nvidia0, …) and nothing behind them. This plug-in
finds them as a pod does on EKS' NVIDIA images, only with privileges, and registers them with the kubelet.

plugin     the messages, the services and the registration
"""

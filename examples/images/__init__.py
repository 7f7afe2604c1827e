"""Image classification on an ImageFolder: ResNets of torchvision, and a small network for digits.

train     the training script: flags, optimizer, schedule, loss and score
model     the networks
data      images on a volume as a dataset
augment   how a training image is varied
"""

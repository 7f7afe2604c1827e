"""Image classification on an ImageFolder, with torchvision's ResNets and a small network for digits.

train     the training script: flags, optimizer, schedule, loss and score
model     the networks
data      images on a volume as a dataset
augment   resizing, and random changes of training images
"""

"""What runs in the cluster to control the training job. Imports `contract` and the standard library.

decide   what to do about one ElasticJob, decided from what is observed
scale    the scaler: keeps an elastic Indexed Job at a number of workers
"""
